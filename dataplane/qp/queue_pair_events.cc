#include "dataplane/qp/queue_pair_events.h"

#include "dataplane/base/async_event.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/trace.h"
#include "dataplane/types/target_opening.h"

namespace roci::dataplane {

uint32_t QueuePairEvents::Send(const OnShard& shard, roce::QpEvent event) {
  return SendNumber(shard, is_work_queue_ ? kEventWorkQueueFatal : EventNumber(event));
}

uint32_t QueuePairEvents::SendNumber(const OnShard& shard, uint32_t type) {
  if (trace_ != nullptr && *trace_ != nullptr) (*trace_)->AddEvent(qpn_, type);
  if (context_ != nullptr) return SendTo(shard, *context_, user_handle_, type, sent_) ? 1 : 0;
  uint32_t programs = 0;
  for (TargetOpening* opening : openings_) {
    programs += SendTo(shard, *opening->context, opening->user_handle, type, opening->async_events);
  }
  return programs;
}

// Counts the event in `sent` where it is not lost.
bool QueuePairEvents::SendTo(const OnShard& shard, VerbsContext& to, uint64_t element,
                             uint32_t type, std::atomic<uint32_t>& sent) {
  if (!to.SendAsyncEvent(shard, element, type)) return false;
  sent.store(sent.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace roci::dataplane
