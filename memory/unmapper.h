// A thread that unmaps: to give back many GiB takes the kernel seconds, which control has not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::memory {

/// A mapping that nobody uses any more. The owner allocates it beforehand, so that nothing can fail
/// when it is to be given back.
struct RetiredMapping {
  std::byte* base = nullptr;
  size_t length = 0;
  int dma_buffer = -1;  ///< Its access ends with the mapping; -1: none.
  RetiredMapping* next = nullptr;
};

/// One for the process.
class Unmapper {
 public:
  /// Takes over `mapping`, allocated with `new`, and unmaps it soon. Where no thread can be had the
  /// caller does it. Any thread.
  static void Retire(RetiredMapping* mapping);
  /// Mappings that have been retired and are there still.
  static uint32_t backlog();
  static uint64_t backlog_bytes();
  /// Blocks until there is none. For tests.
  static void Drain();
};

}  // namespace roci::memory
