// The token of dataplane/base/on_shard.h for tests of single parts, whose one thread is their
// shard.
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
