// What a test and a daemon with failing_allocations.cc preloaded have in common: a page of the file
// that ROCI_TEST_ALLOCATIONS names.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::testing {

struct FailingAllocations {
  std::atomic<uint32_t> countdown;  // the allocation of the main thread that fails; 0: none does
  std::atomic<uint32_t> failed;     // so many have
};

}  // namespace roci::testing
