// What the programs of one user use of the copies by system calls.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::dataplane {

// AppCopies has the limits. Thread-safe.
struct CopyUse {
  std::atomic<uint32_t> threads{0};  // copier threads
  std::atomic<uint32_t> frames{0};   // parked frames
};

}  // namespace roci::dataplane
