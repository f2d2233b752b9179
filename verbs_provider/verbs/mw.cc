// Memory windows: allocation, and the bind of type 1. The program binds type 2 by work requests.
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/rings/send_entry.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {

ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
  auto* mw = Allocate<ibv_mw>();
  if (mw == nullptr) return nullptr;
  roci_abi_alloc_mw_request request = {};
  roci_abi_alloc_mw_response response = {};
  request.pd = pd->handle;
  request.type = type;
  const int error = SessionOf(pd->context)->client.Call(ROCI_ABI_ALLOC_MW, &request, &response);
  if (error != 0) {
    Free(mw);
    return Fail(error);
  }
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = response.rkey;
  mw->handle = response.handle;
  mw->type = type;
  AcquireDomain(pd);
  return mw;
}

int DeallocMw(ibv_mw* mw) {
  VerbsSession* session = PresentSessionOf(mw->context);
  const int error = CallWithHandle(session->client, ROCI_ABI_DEALLOC_MW, mw->handle);
  if (!IsGone(session, error)) return error;
  ReleaseDomain(mw->pd);
  Free(mw);
  return 0;
}

namespace {

int PostBind(ibv_qp* ibqp, ibv_mw* mw, ibv_mw_bind* bind) {
  Qp* qp = ToQp(ibqp);
  int error = qp->send_refusal.load(std::memory_order_relaxed);
  if (!qp->session->alive()) return EIO;
  if (error != 0) return PostResult(error);
  // IBTA vol 1, o10-36.2.2.
  if ((bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return EINVAL;
  SendQueue& sq = qp->sq;
  const SpinGuard guard(sq.lock);
  roci_abi_send_wqe* entry = BeginEntry(sq, sq.head, sq.opcodes.verbs, IBV_WR_BIND_MW, bind->wr_id,
                                        bind->send_flags, &error);
  if (entry == nullptr) return error;
  PutBinding(entry, *mw, ibv_inc_rkey(mw->rkey), bind->bind_info);
  Publish(sq.shared, ++sq.head, sq.bells, sq.handle);
  return 0;
}

}  // namespace

int BindMw(ibv_qp* ibqp, ibv_mw* mw, ibv_mw_bind* bind) {
  return SetErrno(PostBind(ibqp, mw, bind));
}

}  // namespace roci::provider
