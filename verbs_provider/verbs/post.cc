// ibv_post_send and ibv_post_recv.
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {

int PostSend(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp* qp = ToQp(ibqp);
  int error = qp->send_refusal.load(std::memory_order_relaxed);
  if (!qp->session->alive()) [[unlikely]] {
    error = EIO;
  }
  if (error == 0) [[likely]] {
    return SetErrno(PostSendList(qp->sq, wr, bad));
  }
  if (error == kDropPosts) return 0;
  *bad = wr;
  return SetErrno(error);
}

int PostRecv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp* qp = ToQp(ibqp);
  int error = qp->recv_refusal.load(std::memory_order_relaxed);
  if (!qp->session->alive()) [[unlikely]] {
    error = EIO;
  }
  if (error == 0) [[likely]] {
    return SetErrno(PostRecvList(qp->rq, wr, bad));
  }
  if (error == kDropPosts) return 0;
  *bad = wr;
  return SetErrno(error);
}

}  // namespace roci::provider
