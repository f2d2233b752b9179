// XRC domains and XRC target queue pairs, which have no queues in this program.
#include <fcntl.h>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

void InitTarget(Qp* qp, ibv_xrcd* xrcd, void* qp_context) {
  ibv_qp& base = qp->vqp.qp;
  qp->session = SessionOf(xrcd->context);
  base.context = xrcd->context;
  base.qp_context = qp_context;
  base.qp_type = IBV_QPT_XRC_RECV;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
}

}  // namespace

ibv_xrcd* OpenXrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return Fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded) return Fail(EINVAL);
  auto* xrcd = Allocate<verbs_xrcd>();
  if (xrcd == nullptr) return nullptr;
  roci_abi_open_xrcd_request request = {};
  roci_abi_handle_response response = {};
  FdsToSend fds;
  if (attr->fd != -1) fds.fds[fds.count++] = attr->fd;
  request.has_file = fds.count;
  if ((attr->oflags & O_CREAT) != 0) request.flags |= ROCI_ABI_XRCD_CREATE;
  if ((attr->oflags & O_EXCL) != 0) request.flags |= ROCI_ABI_XRCD_EXCLUSIVE;
  // An invalid descriptor would make sendmsg fail, as if the daemon had exited.
  const int error =
      attr->fd != -1 && fcntl(attr->fd, F_GETFD) < 0
          ? EBADF
          : SessionOf(context)->client.Call(ROCI_ABI_OPEN_XRCD, &request, &response, &fds);
  if (error != 0) {
    Free(xrcd);
    return Fail(error);
  }
  xrcd->xrcd.context = context;
  xrcd->comp_mask = VERBS_XRCD_HANDLE;
  xrcd->handle = response.handle;
  return &xrcd->xrcd;
}

int CloseXrcd(ibv_xrcd* ibxrcd) {
  verbs_xrcd* xrcd = ToXrcd(ibxrcd);
  VerbsSession* session = PresentSessionOf(ibxrcd->context);
  const int error = CallWithHandle(session->client, ROCI_ABI_CLOSE_XRCD, xrcd->handle);
  if (!IsGone(session, error)) return error;
  Free(xrcd);
  return 0;
}

ibv_qp* CreateTargetQp(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr ||
      attr->xrcd->context != context) {
    return Fail(EINVAL);
  }
  auto* qp = Allocate<Qp>();
  if (qp == nullptr) return nullptr;
  roci_abi_create_qp_request request = {};
  roci_abi_create_qp_response response = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&qp->vqp.qp);
  request.pd = ToXrcd(attr->xrcd)->handle;
  request.srq = ~uint32_t{0};
  request.qp_type = IBV_QPT_XRC_RECV;
  const int error = SessionOf(context)->client.Call(ROCI_ABI_CREATE_QP, &request, &response);
  if (error != 0) {
    Free(qp);
    return Fail(error);
  }
  InitTarget(qp, attr->xrcd, attr->qp_context);
  // The queue pair does not use the PD; librdmacm compares it.
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0) qp->vqp.qp.pd = attr->pd;
  qp->vqp.qp.handle = response.handle;
  qp->vqp.qp.qp_num = response.qpn;
  qp->vqp.qp.state = IBV_QPS_RESET;
  attr->cap = qp->cap;
  return &qp->vqp.qp;
}

ibv_qp* OpenQp(ibv_context* context, ibv_qp_open_attr* attr) {
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return Fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->xrcd == nullptr ||
      attr->xrcd->context != context) {
    return Fail(EINVAL);
  }
  auto* qp = Allocate<Qp>();
  if (qp == nullptr) return nullptr;
  roci_abi_open_qp_request request = {};
  roci_abi_open_qp_response response = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&qp->vqp.qp);
  request.xrcd = ToXrcd(attr->xrcd)->handle;
  request.qpn = attr->qp_num;
  request.qp_type = attr->qp_type;
  const int error = SessionOf(context)->client.Call(ROCI_ABI_OPEN_QP, &request, &response);
  if (error != 0) {
    Free(qp);
    return Fail(error);
  }
  const bool has_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
  InitTarget(qp, attr->xrcd, has_context ? attr->qp_context : nullptr);
  qp->vqp.qp.handle = response.handle;
  qp->vqp.qp.qp_num = attr->qp_num;
  qp->vqp.qp.state = static_cast<ibv_qp_state>(response.state);
  return &qp->vqp.qp;
}

}  // namespace roci::provider
