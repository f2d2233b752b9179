// The one Dataplane of a test program: DPDK starts once per process.
#pragma once

#include "dataplane/shard/dataplane.h"

namespace roci::testing {

inline constexpr uint32_t kTestLcores = 2;

// Started before the first test, stopped after the last.
dataplane::Dataplane& TestDataplane();

}  // namespace roci::testing
