// Page shared by a test and a daemon with failing_allocations.cc preloaded: the file
// ROCI_TEST_ALLOCATIONS.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::testing {

struct FailingAllocations {
  std::atomic<uint32_t> countdown;  // to the allocation that fails; 0: none
  std::atomic<uint32_t> failed;     // allocations that have failed
};

}  // namespace roci::testing
