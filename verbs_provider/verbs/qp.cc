// Queue pairs: creation, modification, queries, destruction. Posting is in post.cc.
#include <algorithm>
#include <cstring>

#include "verbs_provider/session/path_wait.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/events.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/poll.h"
#include "verbs_provider/verbs/qp_attributes.h"
#include "verbs_provider/verbs/queue_pair_parts.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

bool IsTarget(const Qp* qp) { return qp->vqp.qp.qp_type == IBV_QPT_XRC_RECV; }
bool HasReceiveQueue(const ibv_qp& qp) {
  return qp.qp_type != IBV_QPT_XRC_SEND && qp.qp_type != IBV_QPT_XRC_RECV && qp.srq == nullptr;
}

// Holds the locks of a QP's CQs, in the order of their addresses. XRC and RSS queue pairs have one
// CQ or none.
class CqLocks {
 public:
  explicit CqLocks(const Qp* qp)
      : first_(std::min(SendCq(qp), RecvCq(qp))), second_(std::max(SendCq(qp), RecvCq(qp))) {
    if (first_ != nullptr) first_->lock.Lock();
    if (second_ != first_) second_->lock.Lock();
  }
  ~CqLocks() {
    if (second_ != first_) second_->lock.Unlock();
    if (first_ != nullptr) first_->lock.Unlock();
  }
  CqLocks(const CqLocks&) = delete;
  CqLocks& operator=(const CqLocks&) = delete;

  // Calls visit(cq) for each.
  template <class Visit>
  void ForEach(Visit&& visit) const {
    if (first_ != nullptr) visit(*first_);
    if (second_ != first_) visit(*second_);
  }

 private:
  static Cq* SendCq(const Qp* qp) { return IsTarget(qp) ? nullptr : ToCq(qp->vqp.qp.send_cq); }
  static Cq* RecvCq(const Qp* qp) {
    return qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND || IsTarget(qp) ? SendCq(qp)
                                                                  : ToCq(qp->vqp.qp.recv_cq);
  }

  Cq* const first_;
  Cq* const second_;
};

// Sets whether posts are accepted in `state` (IBTA vol 1, 10.3.1). Requests that are posted in ERR
// complete with flush errors.
void NoteState(Qp* qp, ibv_qp_state state) {
  const bool sends =
      state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
  const bool receives = state != IBV_QPS_RESET;
  // Queue pairs without the queue refuse always.
  const int refusal = qp->session->has_lenient_posts ? kDropPosts : EINVAL;
  qp->send_refusal.store(IsTarget(qp) ? EINVAL : sends ? 0 : refusal, std::memory_order_relaxed);
  qp->recv_refusal.store(!HasReceiveQueue(qp->vqp.qp) ? EINVAL
                         : receives                   ? 0
                                                      : refusal,
                         std::memory_order_relaxed);
}

// Makes poll skip the completions of a QP that is destroyed or reset, as IBTA vol 1, 10.3.1 allows:
// they must not move the tails of a later queue with the same handle. Frees their slots of a shared
// receive queue.
void SkipCompletions(const Qp* qp, const CqLocks& locks) {
  locks.ForEach([qp](Cq& cq) {
    cq.ring.SkipEntries(
        // Completions of tag matching belong to the shared receive queue.
        [qp](const roci_abi_cqe& entry) {
          return entry.qpn == qp->vqp.qp.qp_num && entry.opcode != IBV_WC_TM_RECV;
        },
        [qp](const roci_abi_cqe& entry) {
          if ((entry.flags & ROCI_ABI_CQE_SRQ) != 0) FreeWork(qp->session, entry);
        });
  });
}

// After a transition to RESET both queues begin at index 0 again, also in the daemon.
template <class Queue>
void EmptyQueue(Queue* queue) {
  const SpinGuard guard(queue->lock);
  queue->head = 0;
  queue->tail.store(0, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(queue->shared->producer).store(0, std::memory_order_release);
}

void EmptyQueues(Qp* qp) {
  if (IsTarget(qp)) return;
  const CqLocks locks(qp);
  SkipCompletions(qp, locks);
  EmptyQueue(&qp->sq);
  EmptyQueue(&qp->rq);
}

// Sets the members that SendQueue and RecvQueue share. False if the response is inconsistent.
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

// Sets up the queues from the daemon's response. 0 or EPROTO.
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
  sq.session = qp->session;
  sq.may_restart = qp->session->may_restart;
  sq.opcodes = abi::SendOpcodesOf(type);
  sq.opcodes.verbs &= ~r.lacking_opcodes;
  sq.opcodes.rocidv &= ~r.lacking_opcodes;
  if (qp->session->has_lenient_posts && type == IBV_QPT_UD) {
    sq.opcodes.misplaced =
        abi::SendOpcodesOf(IBV_QPT_RC).verbs & ~sq.opcodes.verbs & ~r.lacking_opcodes;
  }
  sq.is_datagram = type == IBV_QPT_UD;
  sq.slot_flags = SlotFlagsOf(type, qp->session->fills_checksums);
  return 0;
}

int Destroy(VerbsSession* session, uint32_t handle, roci_abi_destroy_response* response) {
  roci_abi_handle_request request = {};
  request.handle = handle;
  return session->client.Call(ROCI_ABI_DESTROY_QP, &request, response);
}

}  // namespace

int FinishParts(Qp* qp, int error, ibv_qp_type type, uint32_t pd,
                const roci_abi_create_qp_response& response, const ReceivedFds& fds) {
  VerbsSession* session = qp->session;
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = qp->memory.Map(fds.at(0), response.memory_size);
  if (error == 0) error = PlaceQueues(qp, type, response);
  if (error != 0) {
    roci_abi_destroy_response ignored = {};
    if (response.head.error == 0) Destroy(session, response.handle, &ignored);
    qp->memory.Unmap();
    return error;
  }
  qp->sq.pd = pd;
  qp->vqp.qp.handle = response.handle;
  qp->vqp.qp.qp_num = response.qpn;
  qp->cap = {.max_send_wr = response.max_send_wr,
             .max_recv_wr = response.max_recv_wr,
             .max_send_sge = response.max_send_sge,
             .max_recv_sge = response.max_recv_sge,
             .max_inline_data = response.max_inline};
  return 0;
}

void AddToTable(Qp* qp) {
  const CqLocks locks(qp);
  qp->session->qps[qp->vqp.qp.handle].store(qp, std::memory_order_relaxed);
}

int DestroyParts(Qp* qp, const void* element, uint32_t* async_events) {
  VerbsSession* session = qp->session;
  const uint32_t handle = qp->vqp.qp.handle;
  int error;
  {
    EventRemoval removal(session);
    roci_abi_destroy_response response = {};
    error = Destroy(session, handle, &response);
    if (!IsGone(session, error)) return error;
    *async_events = removal.RemoveAsyncEvents(element, response.async_events);
  }
  if (!session->inherited()) {
    const CqLocks locks(qp);
    SkipCompletions(qp, locks);
    session->qps[handle].store(nullptr, std::memory_order_relaxed);
  }
  UnmapOwn(session, &qp->memory);
  return error;
}

namespace {

int Check(const ibv_pd* pd, const ibv_qp_init_attr& attr) {
  if (abi::SendOpcodesOf(attr.qp_type).served() == 0) return EOPNOTSUPP;
  const auto is_ours = [pd](const auto* object) {
    return object != nullptr && object->context == pd->context;
  };
  if (pd == nullptr || !is_ours(attr.send_cq)) return EINVAL;
  if (attr.qp_type == IBV_QPT_XRC_SEND) return 0;  // has neither receive CQ nor SRQ
  // The rings of an inherited queue are not mapped in a forked child.
  if (attr.srq != nullptr && ToSrq(attr.srq)->session != SessionOf(pd->context)) return EINVAL;
  return is_ours(attr.recv_cq) && (attr.srq == nullptr || is_ours(attr.srq)) ? 0 : EINVAL;
}

// `flags`: enum ibv_qp_create_flags.
ibv_qp* CreateWith(ibv_pd* pd, ibv_qp_init_attr* attr, uint32_t flags) {
  const int refusal = Check(pd, *attr);
  if (refusal != 0) return Fail(refusal);
  auto* qp = AllocateIn<Qp>(pd, DomainMemory::kQueuePair);
  if (qp == nullptr) return nullptr;
  if (IsSingleThreaded(pd)) {
    qp->sq.lock.DisableLocking();
    qp->rq.lock.DisableLocking();
  }
  qp->session = SessionOf(pd->context);
  qp->sq_sig_all = attr->sq_sig_all;
  roci_abi_create_qp_request request = {};
  request.user_handle = reinterpret_cast<uintptr_t>(&qp->vqp.qp);
  request.pd = pd->handle;
  request.send_cq = attr->send_cq->handle;
  request.srq = ROCI_ABI_NO_HANDLE;
  if (attr->qp_type != IBV_QPT_XRC_SEND) {
    request.recv_cq = attr->recv_cq->handle;
    if (attr->srq != nullptr) request.srq = attr->srq->handle;
  }
  request.qp_type = attr->qp_type;
  request.sq_sig_all = attr->sq_sig_all != 0 ? 1 : 0;
  request.max_send_wr = attr->cap.max_send_wr;
  request.max_recv_wr = attr->cap.max_recv_wr;
  request.max_send_sge = attr->cap.max_send_sge;
  request.max_recv_sge = attr->cap.max_recv_sge;
  request.max_inline = attr->cap.max_inline_data;
  static_assert(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB == int{ROCI_ABI_QP_BLOCK_SELF_MULTICAST});
  request.flags = flags;
  const int error = CreateParts(qp, ROCI_ABI_CREATE_QP, attr->qp_type, &request);
  if (error != 0) {
    FreeIn(qp, DomainMemory::kQueuePair);
    return Fail(error);
  }
  FinishQp(qp, pd, *attr);
  NoteState(qp, IBV_QPS_RESET);
  attr->cap = qp->cap;
  return &qp->vqp.qp;
}

}  // namespace

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) { return CreateWith(pd, attr, 0); }

ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (attr->qp_type == IBV_QPT_XRC_RECV) {
    constexpr uint32_t kOfTargets = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
    if ((attr->comp_mask & ~kOfTargets) != 0) return Fail(EOPNOTSUPP);
    return CreateTargetQp(context, attr);
  }
  constexpr uint32_t kServed =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  constexpr uint32_t kRss = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  if ((attr->comp_mask & ~(kServed | kRss)) != 0) return Fail(EOPNOTSUPP);
  const uint32_t flags =
      (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? attr->create_flags : 0;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return Fail(EINVAL);
  if ((attr->comp_mask & kRss) != 0) {
    const uint32_t rest = attr->comp_mask & ~(kRss | IBV_QP_INIT_ATTR_PD);
    if (rest != 0 && (rest != IBV_QP_INIT_ATTR_CREATE_FLAGS || flags != 0)) return Fail(EINVAL);
    return (attr->comp_mask & kRss) == kRss ? CreateRssQp(attr->pd, attr) : Fail(EINVAL);
  }
  const bool extended = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const auto lacks = [attr, extended](const abi::SendOpcodesOfType& opcodes) {
    return extended && (attr->send_ops_flags & ~SendOperationsOf(opcodes)) != 0;
  };
  if (lacks(abi::SendOpcodesOf(attr->qp_type))) return Fail(EOPNOTSUPP);
  // The extended structure begins with the members of the plain one.
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) ==
                offsetof(ibv_qp_init_attr, sq_sig_all));
  const ibv_qp_cap wanted = attr->cap;
  ibv_qp* qp = CreateWith(attr->pd, reinterpret_cast<ibv_qp_init_attr*>(attr), flags);
  if (qp != nullptr && lacks(ToQp(qp)->sq.opcodes)) {
    // What the device lacks is known from the answer to CREATE_QP.
    DestroyQp(qp);
    attr->cap = wanted;
    return Fail(EOPNOTSUPP);
  }
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
  if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RTR) {
    request.attr.ece_options = AgreedEce(*qp);
  }
  const int error = CallWithPath(qp->session, ROCI_ABI_MODIFY_QP, &request, &response);
  if (error != 0) return error;
  const auto state = static_cast<ibv_qp_state>(response.state);
  if ((mask & IBV_QP_STATE) != 0 && state == IBV_QPS_RESET) {
    EmptyQueues(qp);
    qp->ece_options = Qp::kEceNotSet;
  }
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
  // The daemon may have moved the QP to ERR since the last ModifyQp.
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

int ModifyRateLimit(ibv_qp* ibqp, ibv_qp_rate_limit_attr* limit) {
  if (limit->comp_mask != 0) return EINVAL;
  Qp* qp = ToQp(ibqp);
  roci_abi_modify_qp_request request = {};
  roci_abi_modify_qp_response response = {};
  request.handle = ibqp->handle;
  request.mask = IBV_QP_RATE_LIMIT;
  request.attr.rate_limit_kbps = limit->rate_limit;
  // typical_pkt_sz is a hint for hardware and is ignored.
  request.attr.rate_burst_bytes = limit->max_burst_sz;
  return qp->session->client.Call(ROCI_ABI_MODIFY_QP, &request, &response);
}

int DestroyQp(ibv_qp* ibqp) {
  Qp* qp = ToQp(ibqp);
  uint32_t async_events = 0;
  const int error = DestroyParts(qp, ibqp, &async_events);
  if (!IsGone(qp->session, error)) return error;
  if (error == 0) AwaitQpAcknowledgements(ibqp, async_events);
  pthread_cond_destroy(&ibqp->cond);
  pthread_mutex_destroy(&ibqp->mutex);
  FreeIn(qp, DomainMemory::kQueuePair);
  return 0;
}

}  // namespace roci::provider
