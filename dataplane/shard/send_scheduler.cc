#include "dataplane/shard/send_scheduler.h"

namespace roci::dataplane {

TurnShare& SendScheduler::Join(const void* user) {
  if (!by_user()) return common_;
  for (const auto& share : shares_) {
    if (share->user != user) continue;
    ++share->contexts;
    return *share;
  }
  heap_.reserve(shares_.size() + 2);  // and the common one
  shares_.push_back(std::make_unique<TurnShare>());
  TurnShare& share = *shares_.back();
  share.user = user;
  share.contexts = 1;
  return share;
}

void SendScheduler::Leave(TurnShare& share) {
  if (&share == &common_ || --share.contexts != 0) return;
  std::erase(heap_, &share);
  std::make_heap(heap_.begin(), heap_.end(), IsLater);
  std::erase_if(shares_, [&](const auto& each) { return each.get() == &share; });
}

void SendScheduler::Remove(TurnShare& share, QueuePair& qp) {
  --share.members;
  if (!share.queue_pairs.Remove(qp)) return;
  Unlist(qp);
}

}  // namespace roci::dataplane
