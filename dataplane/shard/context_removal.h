// Removes the queues of a verbs context from its lcore, some at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::dataplane {

class Lcore;
class OnShard;
class VerbsContext;

// The control thread creates and destroys it; meanwhile it adds no queue to the context. Cannot
// fail: nothing is allocated.
class ContextRemoval {
 public:
  // Queues in one loop iteration.
  static constexpr uint32_t kMostInRow = 32;

  ContextRemoval(Lcore& lcore, VerbsContext& context) : lcore_(lcore), context_(context) {}

  // Removes the next queues: queue pairs first, then the queues that they use. True: there may be
  // more. False: the lcore uses no queue of the context any more. For Lcore::CallInParts.
  bool RemoveSome(const OnShard& shard);

 private:
  // True: none is left.
  bool RemoveQueuePairs(const OnShard& shard);
  bool RemoveSharedQueues(const OnShard& shard);
  bool RemoveCompletionQueues(const OnShard& shard);

  Lcore& lcore_;
  VerbsContext& context_;
  uint32_t budget_ = 0;  // of the call
  uint32_t next_handle_ = 0;
  size_t next_shared_queue_ = 0;
  size_t next_target_ = 0;  // XrcTargets::RemoveQueue
  size_t next_completion_queue_ = 0;
};

}  // namespace roci::dataplane
