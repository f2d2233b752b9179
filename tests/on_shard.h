// The token of dataplane/base/on_shard.h for unit tests with one thread, which acts as the shard.
#pragma once

#include "dataplane/base/on_shard.h"

namespace roci::dataplane {

struct OnShardInTests {
  static const OnShard& Token() {
    static const OnShard token;
    return token;
  }
};

}  // namespace roci::dataplane
