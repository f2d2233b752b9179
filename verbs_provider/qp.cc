// Queue pairs: creation, modification, queries, destruction. Posting is in post.cc.
#include <algorithm>
#include <cstring>

#include "verbs_provider/allocate.h"
#include "verbs_provider/events.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/qp_attributes.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

constexpr uint32_t kNoSrq = ~uint32_t{0};

// Both CQs of a QP, locked in the order of their addresses.
class CqLocks {
 public:
  explicit CqLocks(const Qp* qp)
      : first_(std::min(SendCq(qp), RecvCq(qp))), second_(std::max(SendCq(qp), RecvCq(qp))) {
    first_->lock.Lock();
    if (second_ != first_) second_->lock.Lock();
  }
  ~CqLocks() {
    if (second_ != first_) second_->lock.Unlock();
    first_->lock.Unlock();
  }
  CqLocks(const CqLocks&) = delete;
  CqLocks& operator=(const CqLocks&) = delete;

  static Cq* SendCq(const Qp* qp) { return ToCq(qp->vqp.qp.send_cq); }
  static Cq* RecvCq(const Qp* qp) { return ToCq(qp->vqp.qp.recv_cq); }

 private:
  Cq* const first_;
  Cq* const second_;
};

// Which states take work requests at all (IBTA vol 1, 10.3.1); what is posted in ERR completes with
// flush errors.
void NoteState(Qp* qp, ibv_qp_state state) {
  const bool sends =
      state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
  qp->send_refusal.store(sends ? 0 : EINVAL, std::memory_order_relaxed);
  qp->recv_refusal.store(state == IBV_QPS_RESET ? EINVAL : 0, std::memory_order_relaxed);
}

// Completions that were not polled before the QP went away or was reset are not delivered (IBTA vol
// 1, 10.3.1 lets them vanish), and must not move the tails of the queues that come after.
void SkipCompletions(const Qp* qp) {
  CqLocks::SendCq(qp)->ring.SkipEntriesOf(qp->vqp.qp.qp_num);
  CqLocks::RecvCq(qp)->ring.SkipEntriesOf(qp->vqp.qp.qp_num);
}

// In RESET both queues are empty and begin at index 0 again, on the daemon's side too.
template <class Queue>
void EmptyQueue(Queue* queue) {
  const SpinGuard guard(queue->lock);
  queue->head = 0;
  queue->tail.store(0, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(queue->shared->producer).store(0, std::memory_order_release);
}

void EmptyQueues(Qp* qp) {
  const CqLocks locks(qp);
  SkipCompletions(qp);
  EmptyQueue(&qp->sq);
  EmptyQueue(&qp->rq);
}

// What send and receive queue have in common. False where the answer's numbers do not fit together.
template <class Queue>
bool PlaceQueue(const Qp* qp, uint32_t capacity, uint32_t stride, uint32_t queue_offset,
                uint32_t slots_offset, uint32_t header_bytes, Queue* queue) {
  queue->shared = qp->memory.template At<roci_abi_queue>(queue_offset);
  queue->slots = qp->memory.template At<std::byte>(slots_offset, uint64_t{capacity} * stride);
  queue->bells = qp->session->bells;
  queue->mask = capacity - 1;
  queue->stride = stride;
  return queue->shared != nullptr && queue->slots != nullptr && (capacity & (capacity - 1)) == 0 &&
         queue->limit <= capacity && stride % 16 == 0 && slots_offset % 16 == 0 &&
         (capacity == 0 ||
          stride >= header_bytes + uint64_t{queue->max_sge} * sizeof(roci_abi_sge));
}

// Lays the queues out as the daemon says. 0 or EPROTO.
int PlaceQueues(Qp* qp, ibv_qp_type type, const roci_abi_create_qp_response& r) {
  SendQueue& sq = qp->sq;
  RecvQueue& rq = qp->rq;
  sq.handle = rq.handle = r.handle;
  sq.limit = r.max_send_wr;
  sq.max_sge = std::min<uint32_t>(r.max_send_sge, UINT8_MAX);
  sq.max_inline = r.max_inline;
  rq.limit = r.max_recv_wr;
  rq.max_sge = r.max_recv_sge;
  if (r.handle >= ROCI_ABI_MAX_QP_HANDLES ||
      !PlaceQueue(qp, r.send_capacity, r.send_stride, r.send_queue_offset, r.send_slots_offset,
                  sizeof(roci_abi_send_wqe), &sq) ||
      !PlaceQueue(qp, r.recv_capacity, r.recv_stride, r.recv_queue_offset, r.recv_slots_offset,
                  sizeof(roci_abi_recv_wqe), &rq)) {
    return EPROTO;
  }
  const uint32_t header = sizeof(roci_abi_send_wqe);
  const uint32_t room = sq.stride > header ? sq.stride - header : 0;
  if (sq.max_inline > room) return EPROTO;
  sq.auto_inline = std::min(qp->session->auto_inline, room);
  sq.keys = &qp->session->keys;
  sq.opcodes = SendOpcodesOf(type);
  sq.is_datagram = type == IBV_QPT_UD;
  return 0;
}

int Destroy(Session* session, uint32_t handle, roci_abi_destroy_response* response) {
  roci_abi_handle_request request = {};
  request.handle = handle;
  return session->client.Call(ROCI_ABI_DESTROY_QP, &request, response);
}

int Create(Qp* qp, const roci_abi_create_qp_request& filled) {
  Session* session = qp->session;
  roci_abi_create_qp_request request = filled;
  roci_abi_create_qp_response response = {};
  ReceivedFds fds;
  int error = session->client.Call(ROCI_ABI_CREATE_QP, &request, &response, nullptr, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = qp->memory.Map(fds.at(0), response.memory_size);
  if (error == 0) error = PlaceQueues(qp, static_cast<ibv_qp_type>(request.qp_type), response);
  if (error != 0) {
    roci_abi_destroy_response ignored = {};
    if (response.head.error == 0) Destroy(session, response.handle, &ignored);
    qp->memory.Unmap();
    return error;
  }
  qp->sq.pd = request.pd;
  qp->vqp.qp.handle = response.handle;
  qp->vqp.qp.qp_num = response.qpn;
  qp->cap = {.max_send_wr = response.max_send_wr,
             .max_recv_wr = response.max_recv_wr,
             .max_send_sge = response.max_send_sge,
             .max_recv_sge = response.max_recv_sge,
             .max_inline_data = response.max_inline};
  return 0;
}

// libibverbs' own half, which it leaves to the provider.
void InitBase(Qp* qp, ibv_pd* pd, const ibv_qp_init_attr& attr) {
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
}

int Check(const ibv_pd* pd, const ibv_qp_init_attr& attr) {
  if (attr.srq != nullptr) return EOPNOTSUPP;
  if (SendOpcodesOf(attr.qp_type).served == 0) return EOPNOTSUPP;
  const bool complete = pd != nullptr && attr.send_cq != nullptr && attr.recv_cq != nullptr;
  return complete && attr.send_cq->context == pd->context && attr.recv_cq->context == pd->context
             ? 0
             : EINVAL;
}

}  // namespace

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  const int refusal = Check(pd, *attr);
  if (refusal != 0) return Fail(refusal);
  auto* qp = Allocate<Qp>();
  if (qp == nullptr) return nullptr;
  Session* session = SessionOf(pd->context);
  qp->session = session;
  qp->sq_sig_all = attr->sq_sig_all;
  roci_abi_create_qp_request request = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&qp->vqp.qp);
  request.pd = pd->handle;
  request.send_cq = attr->send_cq->handle;
  request.recv_cq = attr->recv_cq->handle;
  request.srq = kNoSrq;
  request.qp_type = attr->qp_type;
  request.sq_sig_all = attr->sq_sig_all != 0 ? 1 : 0;
  request.max_send_wr = attr->cap.max_send_wr;
  request.max_recv_wr = attr->cap.max_recv_wr;
  request.max_send_sge = attr->cap.max_send_sge;
  request.max_recv_sge = attr->cap.max_recv_sge;
  request.max_inline = attr->cap.max_inline_data;
  const int error = Create(qp, request);
  if (error != 0) {
    Free(qp);
    return Fail(error);
  }
  InitBase(qp, pd, *attr);
  attr->cap = qp->cap;
  {
    const CqLocks locks(qp);
    session->qps[qp->vqp.qp.handle].store(qp, std::memory_order_relaxed);
  }
  return &qp->vqp.qp;
}

ibv_qp* CreateQpEx(ibv_context*, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t kServed =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const bool wants_flags =
      (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0;
  if ((attr->comp_mask & ~kServed) != 0 || wants_flags) return Fail(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return Fail(EINVAL);
  const bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (extended && (attr->send_ops_flags & ~SendOperationsOf(attr->qp_type)) != 0) {
    return Fail(EOPNOTSUPP);
  }
  // The extended structure begins like the plain one.
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) ==
                offsetof(ibv_qp_init_attr, sq_sig_all));
  ibv_qp* qp = CreateQp(attr->pd, reinterpret_cast<ibv_qp_init_attr*>(attr));
  if (qp != nullptr && extended) EnableSendCalls(ToQp(qp), attr->send_ops_flags);
  return qp;
}

int ModifyQp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  Qp* qp = ToQp(ibqp);
  roci_abi_modify_qp_request request = {};
  roci_abi_modify_qp_response response = {};
  request.handle = ibqp->handle;
  request.mask = static_cast<uint32_t>(mask);
  request.attr = ToAbi(*attr, request.mask);
  const int error = qp->session->client.Call(ROCI_ABI_MODIFY_QP, &request, &response);
  if (error != 0) return error;
  const auto state = static_cast<ibv_qp_state>(response.state);
  if ((mask & IBV_QP_STATE) != 0 && state == IBV_QPS_RESET) EmptyQueues(qp);
  NoteState(qp, state);
  return 0;
}

int QueryQp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  Qp* qp = ToQp(ibqp);
  roci_abi_query_qp_request request = {};
  roci_abi_query_qp_response response = {};
  request.handle = ibqp->handle;
  request.mask = static_cast<uint32_t>(mask);
  const int error = qp->session->client.Call(ROCI_ABI_QUERY_QP, &request, &response);
  if (error != 0) return error;
  *attr = FromAbi(response.attr);
  attr->cap = qp->cap;
  // The daemon may have ended it since the last modification.
  if (attr->qp_state == IBV_QPS_ERR) NoteState(qp, IBV_QPS_ERR);
  *init = {};
  init->qp_context = ibqp->qp_context;
  init->send_cq = ibqp->send_cq;
  init->recv_cq = ibqp->recv_cq;
  init->srq = ibqp->srq;
  init->cap = qp->cap;
  init->qp_type = ibqp->qp_type;
  init->sq_sig_all = qp->sq_sig_all;
  return 0;
}

int DestroyQp(ibv_qp* ibqp) {
  Qp* qp = ToQp(ibqp);
  Session* session = qp->session;
  roci_abi_destroy_response response = {};
  const int error = Destroy(session, ibqp->handle, &response);
  if (!IsGone(session, error)) return error;
  if (!session->inherited()) {
    const CqLocks locks(qp);
    SkipCompletions(qp);
    session->qps[ibqp->handle].store(nullptr, std::memory_order_relaxed);
  }
  if (error == 0) AwaitQpAcknowledgements(ibqp, response.async_events);
  pthread_cond_destroy(&ibqp->cond);
  pthread_mutex_destroy(&ibqp->mutex);
  UnmapOwn(session, &qp->memory);
  Free(qp);
  return 0;
}

}  // namespace roci::provider
