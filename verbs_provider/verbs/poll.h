// What plain and extended polling have in common.
#pragma once

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// A completed entry of a work queue, and all before it, may be written over. Under the CQ's lock.
inline void FreeWork(const Session* session, const roci_abi_cqe& entry) {
  if ((entry.flags & ROCI_ABI_CQE_SRQ) != 0) [[unlikely]] {
    if (Srq* srq = session->FindSrq(entry.qp_handle)) srq->queue.Release(entry.slot);
    return;
  }
  if ((entry.flags & ROCI_ABI_CQE_TAG) != 0) [[unlikely]] {
    return;
  }
  Qp* qp = session->FindQp(entry.qp_handle);
  // The number tells a QP from an earlier one with the same handle.
  if (qp == nullptr || qp->vqp.qp.qp_num != entry.qpn) [[unlikely]] {
    return;
  }
  std::atomic<uint32_t>& tail = (entry.flags & ROCI_ABI_CQE_SEND) != 0 ? qp->sq.tail : qp->rq.tail;
  tail.store(entry.slot + 1, std::memory_order_release);
}

/// After a poll that found nothing: lets others have the processor now and then, and looks whether
/// the daemon lives. 0 or -EIO.
int PollEmpty(Session* session);
/// After a poll that found something.
void NotePolled();

}  // namespace roci::provider
