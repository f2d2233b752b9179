// The one Dataplane of a test program: DPDK starts once per process.
#pragma once

#include <cstdint>

#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/lcore.h"

namespace roci::testing {

inline constexpr uint32_t kTestLcores = 2;

// Started before the first test, stopped after the last.
dataplane::Dataplane& TestDataplane();
dataplane::Lcore& TestLcore(uint32_t index);

}  // namespace roci::testing
