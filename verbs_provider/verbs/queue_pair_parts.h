// What queue pairs and work queues have in common: rings made by the daemon, a handle, a place in
// the session's table.
#pragma once

#include <cstdint>

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// Lays the rings of `qp` out as the daemon's answer says, which came with `error`. 0 or an errno,
/// with nothing left behind.
int FinishParts(Qp* qp, int error, ibv_qp_type type, uint32_t pd,
                const roci_abi_create_qp_response& response, const ReceivedFds& fds);

/// Sends `request`, whose answer is a roci_abi_create_qp_response, for `qp`, whose session is set.
template <class Request>
int CreateParts(Qp* qp, uint32_t command, ibv_qp_type type, Request* request) {
  roci_abi_create_qp_response response = {};
  ReceivedFds fds;
  const int error = qp->session->client.Call(command, request, &response, nullptr, &fds);
  return FinishParts(qp, error, type, request->pd, response, fds);
}

/// From now on pollers find it by its handle. Its CQs are set (null: it has none).
void MakeKnown(Qp* qp);

/// Fills libibverbs' half in and makes it known.
template <class Attr>
void FinishQp(Qp* qp, ibv_pd* pd, const Attr& attr) {
  ibv_qp& base = qp->vqp.qp;
  base.context = pd->context;
  base.qp_context = attr.qp_context;
  base.pd = pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.srq = attr.srq;
  base.state = IBV_QPS_RESET;
  base.qp_type = attr.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  MakeKnown(qp);
}

/// Ends it at the daemon and forgets it. IsGone(result) says whether it is gone; then
/// `*async_events` is how many events the app has to acknowledge.
int DestroyParts(Qp* qp, uint32_t* async_events);

/// For ibv_create_qp_ex with an indirection table.
ibv_qp* CreateRssQp(ibv_pd* pd, ibv_qp_init_attr_ex* attr);

}  // namespace roci::provider
