// The shared parts of queue pairs and work queues: the rings, the handle, and the entry in the
// session's table.
#pragma once

#include <cstdint>

#include "verbs_provider/verbs/objects.h"

namespace roci::provider {

/// Sets up the rings of `qp` from the daemon's response; `error` is the result of the call. 0 or an
/// errno; on failure the queue pair is destroyed at the daemon.
int FinishParts(Qp* qp, int error, ibv_qp_type type, uint32_t pd,
                const roci_abi_create_qp_response& response, const ReceivedFds& fds);

/// Creates the queue pair at the daemon and sets up its rings. `qp->session` is set; the response
/// to `command` is a roci_abi_create_qp_response. 0 or an errno.
template <class Request>
int CreateParts(Qp* qp, uint32_t command, ibv_qp_type type, Request* request) {
  roci_abi_create_qp_response response = {};
  ReceivedFds fds;
  const int error = qp->session->client.Call(command, request, &response, nullptr, &fds);
  return FinishParts(qp, error, type, request->pd, response, fds);
}

/// Adds the queue pair to the session's table, where poll finds it. Its CQs are set (null: none).
void AddToTable(Qp* qp);

/// Fills in libibverbs' half and adds the queue pair to the session's table.
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
  AddToTable(qp);
}

/// Destroys the queue pair at the daemon and removes it from the table. 0 or an errno. If
/// IsGone(session, result), it is destroyed, and `*async_events` is the number of events that the
/// program has to acknowledge. `element`: what its events carry.
int DestroyParts(Qp* qp, const void* element, uint32_t* async_events);

/// For ibv_create_qp_ex with an indirection table.
ibv_qp* CreateRssQp(ibv_pd* pd, ibv_qp_init_attr_ex* attr);

}  // namespace roci::provider
