// A thread that unmaps: unmapping many GiB takes seconds, for which control must not block. The end
// of a DMA buffer's CPU access may take any time, so each user has a thread of its own for these.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace roci::memory {

struct RetiredMapping;

/// The mappings of one user that are not unmapped yet. Users take turns, so that one user's many
/// GiB do not delay another user's. Thread-safe.
struct RetiredUse {
  std::atomic<uint32_t> mappings{0};
  std::atomic<uint64_t> bytes{0};

 private:
  friend class UnmapperQueue;
  RetiredMapping* first = nullptr;
  RetiredMapping** end = &first;
  RetiredUse* next = nullptr;  // the user whose turn comes next
  // Unmapped DMA buffers whose CPU access has to end, and whether a thread does that.
  RetiredMapping* first_buffer = nullptr;
  bool has_thread = false;
};

/// A mapping without users. The owner allocates this in advance, so that Retire cannot fail.
struct RetiredMapping {
  std::byte* base = nullptr;
  size_t length = 0;
  int dma_buffer = -1;                   ///< DMA buffer whose CPU access ends with it; -1: none.
  std::shared_ptr<RetiredUse> use = {};  ///< Null: of no user.

 private:
  friend class UnmapperQueue;
  size_t done = 0;       // bytes that are unmapped
  size_t next_part = 0;  // 0: the first part
  RetiredMapping* next = nullptr;
};

/// One instance per process.
class Unmapper {
 public:
  /// Takes ownership of `mapping`, allocated with `new`, and unmaps it asynchronously; on the
  /// calling thread if no thread can be started. Any thread.
  static void Retire(RetiredMapping* mapping);
  /// Retired mappings of all users that are not unmapped yet, and bytes in them. A DMA buffer whose
  /// CPU access has not ended counts to its user only.
  static uint32_t backlog();
  static uint64_t backlog_bytes();
  /// Blocks until the backlog is 0. For tests.
  static void Drain();
};

}  // namespace roci::memory
