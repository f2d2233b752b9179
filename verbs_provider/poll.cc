// Polling completion queues.
#include <sched.h>

#include "verbs_provider/objects.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

// On a small machine a thread that polls in vain keeps the daemon from the processor it needs.
constexpr uint32_t kEmptyPollsBeforeYield = 8;
constexpr uint32_t kEmptyPollsPerLook = 1024;  // power of two

// Polls in a row that found nothing, on any CQ of this thread.
thread_local uint32_t empty_polls = 0;

// A completed entry and all before it may be written over.
void FreeWork(Session* session, const roci_abi_cqe& entry) {
  Qp* qp = session->FindQp(entry.qp_handle);
  // The number tells a QP from an earlier one with the same handle.
  if (qp == nullptr || qp->vqp.qp.qp_num != entry.qpn) [[unlikely]] {
    return;
  }
  std::atomic<uint32_t>& tail = (entry.flags & ROCI_ABI_CQE_SEND) != 0 ? qp->sq.tail : qp->rq.tail;
  tail.store(entry.slot + 1, std::memory_order_release);
}

int PollEmpty(Session* session) {
  if (!session->alive()) [[unlikely]] {
    return -EIO;
  }
  const uint32_t tries = ++empty_polls;
  if (tries <= kEmptyPollsBeforeYield) return 0;
  if ((tries & (kEmptyPollsPerLook - 1)) == 0 && !session->client.CheckPeer()) return -EIO;
  sched_yield();
  return 0;
}

}  // namespace

int PollCq(ibv_cq* ibcq, int count, ibv_wc* wc) {
  Cq* cq = ToCq(ibcq);
  Session* session = cq->session;
  int polled = 0;
  if (session->inherited()) [[unlikely]] {
    return -EIO;
  }
  cq->lock.Lock();
  uint32_t consumer = cq->ring.consumer;
  while (polled < count) {
    const roci_abi_cqe* entry = cq->ring.At(consumer);
    if (entry == nullptr) break;
    ++consumer;
    if (entry->status == kSkippedStatus) [[unlikely]] {
      continue;
    }
    FillCompletion(*entry, &wc[polled++]);
    FreeWork(session, *entry);
  }
  if (consumer != cq->ring.consumer) cq->ring.PublishConsumer(consumer);
  cq->lock.Unlock();
  if (polled == 0) return PollEmpty(session);
  empty_polls = 0;
  return polled;
}

}  // namespace roci::provider
