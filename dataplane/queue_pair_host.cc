#include "dataplane/queue_pair_host.h"

#include <algorithm>

#include "dataplane/async_event.h"
#include "dataplane/lcore.h"
#include "dataplane/session.h"
#include "dataplane/worker.h"

namespace roci::dataplane {

using memory::MemoryStatus;

template <class Queue, class Wqe>
MemoryStatus QueuePairHost::ResolveElements(const Queue& queue, const Wqe& wqe, uint32_t offset,
                                            uint32_t length, memory::Access need,
                                            memory::SegmentList& out) {
  uint32_t skip = offset;
  for (uint32_t i = 0; i < wqe.num_sge && length != 0; ++i) {
    const roce::Sge sge = queue.ReadSge(wqe, i);
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const uint32_t part = std::min(length, sge.length - skip);
    const MemoryStatus status = ResolveLocal(sge, skip, part, need, out);
    if (status != MemoryStatus::kOk) return status;
    length -= part;
    skip = 0;
  }
  return length == 0 ? MemoryStatus::kOk : MemoryStatus::kOutOfBounds;
}

template MemoryStatus QueuePairHost::ResolveElements(const SendQueue&, const roce::SendWqe&,
                                                     uint32_t, uint32_t, memory::Access,
                                                     memory::SegmentList&);
template MemoryStatus QueuePairHost::ResolveElements(const RecvQueue&, const roce::RecvWqe&,
                                                     uint32_t, uint32_t, memory::Access,
                                                     memory::SegmentList&);

void QueuePairHost::RaiseEvent(roce::QpEvent event) {
  if (session->SendAsyncEvent(user_handle, EventNumber(event))) {
    session->lcore().worker().stats().async_events.Add(1);
    async_events.store(async_events.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

static_assert(roce::QpHost<QueuePairHost>);

}  // namespace roci::dataplane
