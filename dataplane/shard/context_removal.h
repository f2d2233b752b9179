// Removes the queues of a verbs context from its lcore, some at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace roci::dataplane {

class Lcore;
class OnShard;
class VerbsContext;

// The control thread creates and destroys it; meanwhile it adds no queue to the context. Cannot
// fail: nothing is allocated.
class ContextRemoval {
 public:
  // Queues, and memory windows that are looked at, in one loop iteration.
  static constexpr uint32_t kMostInRow = 32;
  static constexpr uint32_t kWindowsInRow = 256;

  explicit ContextRemoval(VerbsContext& context) : context_(context) {}

  // Removes the next queues from `lcore`, always the same: queue pairs first, then the queues that
  // they use. True: there may be more. False: the lcore uses no queue of the context any more.
  bool RemoveSome(const OnShard& shard, Lcore& lcore);
  // After that: no other context shares its keys and copies.
  bool was_last() const { return was_last_; }

 private:
  // True: none is left.
  bool ReleaseWindows(const OnShard& shard);
  bool RemoveQueuePairs(const OnShard& shard);
  bool RemoveSharedQueues(const OnShard& shard);
  bool RemoveCompletionQueues(const OnShard& shard);

  VerbsContext& context_;
  Lcore* lcore_ = nullptr;
  bool was_last_ = false;
  uint32_t budget_ = 0;  // of the call
  uint32_t windows_budget_ = 0;
  std::optional<uint32_t> windows_of_;  // the number of a queue pair that may have more windows
  uint32_t next_slot_ = 0;              // of the key table; 0: not begun
  uint32_t next_handle_ = 0;
  size_t next_shared_queue_ = 0;
  size_t next_target_ = 0;  // XrcTargets::RemoveQueue
  size_t next_completion_queue_ = 0;
};

}  // namespace roci::dataplane
