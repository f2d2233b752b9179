// Between which parties an lcore is shared equally.
#pragma once

#include <cstdint>

namespace roci::dataplane {

enum class Fairness : uint8_t {
  kQueuePair,  // busy queue pairs, as on adapters: a user with more of them gets more
  kUser        // users with busy queue pairs, whatever their number; then the queue pairs of each
};

}  // namespace roci::dataplane
