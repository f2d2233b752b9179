#include "dataplane/shard/context_removal.h"

#include <algorithm>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"
#include "dataplane/shard/xrc_targets.h"

namespace roci::dataplane {
namespace {

// A handle without a queue pair costs little, but there may be many.
constexpr uint32_t kHandlesInRow = 4096;
// Parts of the budget of a call: for a queue pair that waits for copies, which may have many of its
// packets, and for a member of multicast groups, since all groups of the device are searched.
constexpr uint32_t kWaitingCost = 8;
constexpr uint32_t kMemberCost = ContextRemoval::kMostInRow;

uint32_t CostOf(const OnShard& shard, const QueuePair& qp) {
  if (qp.is_in_groups(shard)) return kMemberCost;
  return qp.is_waiting_for_copies(shard) ? kWaitingCost : 1;
}

}  // namespace

bool ContextRemoval::RemoveSome(const OnShard& shard, Lcore& lcore) {
  lcore_ = &lcore;
  budget_ = kMostInRow;
  windows_budget_ = kWindowsInRow;
  if (!ReleaseWindows(shard)) return true;
  if (!RemoveQueuePairs(shard) || !RemoveSharedQueues(shard) || !RemoveCompletionQueues(shard)) {
    return true;
  }
  was_last_ = context_.copies().Leave(shard);
  if (was_last_) {
    lcore_->worker(shard).RemoveCopies(context_.shared_copies(shard));
  }
  context_.RemoveTagQueues(shard);
  return false;
}

bool ContextRemoval::ReleaseWindows(const OnShard& shard) {
  if (!windows_of_.has_value()) return true;
  if (next_slot_ == 0 && context_.keys(shard).ReleaseWindowsOf(*windows_of_, &windows_budget_)) {
    windows_of_.reset();
    return true;
  }
  if (next_slot_ == 0) next_slot_ = memory::KeyTable::kFirstSlot;
  next_slot_ = context_.keys(shard).ReleaseWindowsIn(*windows_of_, next_slot_, kWindowsInRow);
  if (next_slot_ == 0) windows_of_.reset();
  return false;
}

bool ContextRemoval::RemoveQueuePairs(const OnShard& shard) {
  const bool keys_stay = context_.copies().IsShared();
  const uint32_t last = std::min(context_.handle_end(), next_handle_ + kHandlesInRow);
  for (; next_handle_ < last && budget_ != 0; ++next_handle_) {
    QueuePair* qp = context_.FindQueuePair(shard, next_handle_);
    if (qp == nullptr) continue;
    budget_ -= std::min(budget_, CostOf(shard, *qp));
    lcore_->worker(shard).RemoveQueuePair(*qp);
    const uint32_t qpn = qp->qpn().value();
    if (keys_stay && !context_.keys(shard).ReleaseWindowsOf(qpn, &windows_budget_)) {
      windows_of_ = qpn;
      budget_ = 0;
    }
    context_.RetireQueuePair(shard, next_handle_);
  }
  return next_handle_ == context_.handle_end() && !windows_of_.has_value();
}

bool ContextRemoval::RemoveSharedQueues(const OnShard& shard) {
  const OwnedSet<SharedReceiveQueue>& queues = context_.shared_queues();
  for (; next_shared_queue_ < queues.size(); ++next_shared_queue_) {
    SharedReceiveQueue& srq = *queues[next_shared_queue_];
    if (srq.domain() == nullptr) continue;
    if (budget_ == 0) return false;
    --budget_;
    // Visits many queue pairs, so this ends the call.
    if (srq.domain()->RemoveQueue(shard, srq, next_target_)) return false;
    next_target_ = 0;
  }
  return true;
}

bool ContextRemoval::RemoveCompletionQueues(const OnShard& shard) {
  const OwnedSet<CompletionQueue>& queues = context_.completion_queues();
  for (; next_completion_queue_ < queues.size(); ++next_completion_queue_) {
    if (budget_ == 0) return false;
    --budget_;
    lcore_->worker(shard).events().Unregister(shard, *queues[next_completion_queue_]);
  }
  return true;
}

}  // namespace roci::dataplane
