// Survives SIGBUS in mappings of files that an app can cut short: the faulting page is replaced
// with a page of zeros and the mapping is marked broken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace roci::memory {

/// Process-wide table of mappings in which SIGBUS is survived. The first registration installs the
/// handler; a SIGBUS anywhere else goes on to the action that was there before. All functions are
/// thread-safe.
class SigbusGuard {
 public:
  /// Mappings guarded at one time. Past it, Add refuses and the caller reaches the memory with
  /// system calls.
  static constexpr uint32_t kCapacity = 16384;

  /// One guarded mapping; lives in static storage, so reading `broken` is always safe.
  struct Range {
    std::atomic<uintptr_t> begin;  // 0: slot is free
    std::atomic<uintptr_t> end;
    std::atomic<size_t> page_size;
    std::atomic<bool> broken;
  };

  /// Guards [begin, begin + length), whose pages have `page_size` bytes (huge pages for hugetlb
  /// files). Null when the table is full or no handler could be installed.
  static Range* Add(void* begin, size_t length, size_t page_size);
  /// Ends the guard; call it before (or right after) unmapping, when no thread uses the mapping.
  static void Remove(Range* range);

  /// SIGBUS signals survived since the process started.
  static uint64_t faults();
};

}  // namespace roci::memory
