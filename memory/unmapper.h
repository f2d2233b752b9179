// A thread that unmaps: unmapping many GiB takes seconds, for which control must not block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::memory {

/// A mapping without users. The owner allocates this in advance, so that Retire cannot fail.
struct RetiredMapping {
  std::byte* base = nullptr;
  size_t length = 0;
  int dma_buffer = -1;  ///< DMA buffer whose CPU access ends with the mapping; -1: none.
  RetiredMapping* next = nullptr;
};

/// One instance per process.
class Unmapper {
 public:
  /// Takes ownership of `mapping`, allocated with `new`, and unmaps it asynchronously; on the
  /// calling thread if no thread can be started. Any thread.
  static void Retire(RetiredMapping* mapping);
  /// Number of retired mappings that are not unmapped yet.
  static uint32_t backlog();
  static uint64_t backlog_bytes();
  /// Blocks until the backlog is 0. For tests.
  static void Drain();
};

}  // namespace roci::memory
