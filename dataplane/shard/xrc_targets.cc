#include "dataplane/shard/xrc_targets.h"

#include <algorithm>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/device_lane.h"

namespace roci::dataplane {

XrcTargets::XrcTargets(DeviceLane& lane) : lane_(lane) {}

XrcTargets::~XrcTargets() = default;

void XrcTargets::AddQueue(const OnShard& shard, SharedReceiveQueue& srq) {
  lane_.receive_queues.Add(shard, srq);
}

bool XrcTargets::RemoveQueue(const OnShard& shard, SharedReceiveQueue& srq, size_t& next) {
  // No message can name the queue from now on.
  if (next == 0) lane_.receive_queues.Remove(shard, srq);
  const size_t end = std::min(queue_pairs_.size(), next + kMostInRow);
  for (; next < end; ++next) queue_pairs_[next]->ForgetReceiveQueue(shard, srq);
  return next < queue_pairs_.size();
}

}  // namespace roci::dataplane
