// Handles SIGBUS in mappings of files that a program can truncate: replaces the missing page with a
// page of zeros and marks the mapping broken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace roci::memory {

/// Process-wide table of guarded mappings. The first registration installs the handler; a SIGBUS
/// elsewhere is passed to the previous action. All functions are thread-safe.
class SigbusGuard {
 public:
  /// Most guarded mappings. Beyond it Add fails, and the caller accesses the memory by system
  /// calls.
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
  /// Ends the guard. Call it before (or right after) unmapping, when no thread uses the mapping.
  static void Remove(Range* range);

  /// Number of SIGBUS signals handled since the process started.
  static uint64_t faults();
};

}  // namespace roci::memory
