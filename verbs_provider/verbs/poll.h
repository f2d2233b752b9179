// Shared parts of ibv_poll_cq and of extended polling.
#pragma once

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// Frees the work queue entry that `entry` completes, and those before it, for new posts. Called
/// with the CQ's lock held.
inline void FreeWork(const VerbsSession* session, const roci_abi_cqe& entry) {
  if ((entry.flags & ROCI_ABI_CQE_SRQ) != 0) [[unlikely]] {
    if (Srq* srq = session->FindSrq(entry.qp_handle)) srq->queue.Release(entry.slot);
    return;
  }
  if ((entry.flags & ROCI_ABI_CQE_TAG) != 0) [[unlikely]] {
    return;
  }
  Qp* qp = session->FindQp(entry.qp_handle);
  // A different number: the completion of an earlier QP with the same handle.
  if (qp == nullptr || qp->vqp.qp.qp_num != entry.qpn) [[unlikely]] {
    return;
  }
  std::atomic<uint32_t>& tail = (entry.flags & ROCI_ABI_CQE_SEND) != 0 ? qp->sq.tail : qp->rq.tail;
  tail.store(entry.slot + 1, std::memory_order_release);
}

/// Called after an empty poll. Counts it if the daemon asks for that, yields the processor
/// after several of them, and checks now and then whether the daemon runs. 0 or -EIO.
int PollEmpty(VerbsSession* session);
/// Called after a poll that returned a completion.
void NotePolled();

}  // namespace roci::provider
