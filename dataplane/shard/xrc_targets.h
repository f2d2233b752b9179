// The shard's side of an XRC domain (IBTA vol 1, A14): its receive-only queue pairs, and the shared
// receive queues of several programs, which requests to these queue pairs name.
#pragma once

#include <cstddef>

#include "dataplane/base/on_shard.h"
#include "dataplane/base/owned_set.h"

namespace roci::dataplane {

class DeviceLane;
class QueuePair;
class SharedReceiveQueue;

class XrcTargets {
 public:
  explicit XrcTargets(DeviceLane& lane);
  ~XrcTargets();

  // ---- Control thread (XrcClient)
  DeviceLane& lane() { return lane_; }
  OwnedSet<QueuePair>& queue_pairs() { return queue_pairs_; }

  // ---- On the shard
  void AddQueue(const OnShard& shard, SharedReceiveQueue& srq);
  // The queue pairs that use it have no shared receive queue afterwards. Visits kMostInRow queue
  // pairs from `next` on, which is 0 at first. True: call again, after a loop iteration.
  static constexpr size_t kMostInRow = 64;
  bool RemoveQueue(const OnShard& shard, SharedReceiveQueue& srq, size_t& next);

 private:
  DeviceLane& lane_;
  OwnedSet<QueuePair> queue_pairs_;
};

}  // namespace roci::dataplane
