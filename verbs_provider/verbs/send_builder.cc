// The ibv_wr_* calls (ibv_wr_post(3)). They return nothing, so wr_complete reports the first error.
#include "verbs_provider/verbs/send_builder.h"

#include "verbs_provider/rings/send_entry.h"
#include "verbs_provider/verbs/objects.h"

namespace roci::provider {
namespace {

Qp* ToQp(ibv_qp_ex* qp) { return reinterpret_cast<Qp*>(qp); }

void NoteError(SendBuilder& builder, int error) {
  if (error != 0 && builder.error == 0) builder.error = error;
}

// ---- Start and end of a batch

void Start(ibv_qp_ex* qpx) {
  Qp* qp = ToQp(qpx);
  // In a forked child the lock may have been held by a thread of the parent.
  if (!qp->session->inherited()) [[likely]] {
    qp->sq.lock.Lock();
    qp->sq.RestartIfEmpty();
  }
  const int refusal = qp->send_refusal.load(std::memory_order_relaxed);
  qp->builder = {nullptr, qp->sq.head, qp->session->alive() ? refusal : EIO};
}

int Complete(ibv_qp_ex* qpx) {
  Qp* qp = ToQp(qpx);
  SendQueue& sq = qp->sq;
  const SendBuilder builder = qp->builder;
  // All or nothing: after an error no request is posted.
  if (builder.error == 0 && builder.next != sq.head) {
    sq.head = builder.next;
    Publish(sq.shared, sq.head, sq.bells, sq.handle);
  }
  sq.lock.Unlock();
  return PostResult(builder.error);
}

void Abort(ibv_qp_ex* qpx) { ToQp(qpx)->sq.lock.Unlock(); }

// ---- One request

roci_abi_send_wqe* Begin(ibv_qp_ex* qpx, ibv_wr_opcode opcode) {
  Qp* qp = ToQp(qpx);
  SendBuilder& builder = qp->builder;
  if (builder.error != 0) [[unlikely]] {
    return nullptr;
  }
  // IBV_SEND_INLINE has no meaning here: the setter decides whether the data is inline.
  const unsigned flags = qpx->wr_flags & ~unsigned{IBV_SEND_INLINE};
  builder.entry = BeginEntry(qp->sq, builder.next, qp->sq.opcodes.verbs, opcode, qpx->wr_id, flags,
                             &builder.error);
  if (builder.entry != nullptr) [[likely]] {
    ++builder.next;
  }
  return builder.entry;
}

void Remote(ibv_qp_ex* qpx, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
            __be32 immediate = 0) {
  roci_abi_send_wqe* entry = Begin(qpx, opcode);
  if (entry == nullptr) return;
  entry->rkey = rkey;
  entry->remote_va = address;
  entry->immediate = immediate;
}

void Atomic(ibv_qp_ex* qpx, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
            uint64_t compare_add, uint64_t swap) {
  roci_abi_send_wqe* entry = Begin(qpx, opcode);
  if (entry == nullptr) return;
  entry->rkey = rkey;
  entry->remote_va = address;
  entry->u.atomic.compare_add = compare_add;
  entry->u.atomic.swap = swap;
}

void Write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  Remote(qp, IBV_WR_RDMA_WRITE, rkey, address);
}
void WriteImmediate(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 immediate) {
  Remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, immediate);
}
void Read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  Remote(qp, IBV_WR_RDMA_READ, rkey, address);
}
void Send(ibv_qp_ex* qp) { Begin(qp, IBV_WR_SEND); }
void SendImmediate(ibv_qp_ex* qp, __be32 immediate) {
  roci_abi_send_wqe* entry = Begin(qp, IBV_WR_SEND_WITH_IMM);
  if (entry != nullptr) entry->immediate = immediate;
}
void CompareAndSwap(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare,
                    uint64_t swap) {
  Atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
}
void FetchAndAdd(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  Atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

void SendInvalidate(ibv_qp_ex* qp, uint32_t rkey) {
  roci_abi_send_wqe* entry = Begin(qp, IBV_WR_SEND_WITH_INV);
  if (entry != nullptr) entry->invalidate_key = rkey;
}
void LocalInvalidate(ibv_qp_ex* qp, uint32_t rkey) {
  roci_abi_send_wqe* entry = Begin(qp, IBV_WR_LOCAL_INV);
  if (entry != nullptr) entry->invalidate_key = rkey;
}
void BindWindow(ibv_qp_ex* qpx, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  roci_abi_send_wqe* entry = Begin(qpx, IBV_WR_BIND_MW);
  if (entry == nullptr) return;
  if (mw->type == IBV_MW_TYPE_2) {
    PutBinding(entry, *mw, rkey, *info);
  } else {
    NoteError(ToQp(qpx)->builder, EINVAL);
  }
}
// The eight bytes are copied now, like inline data.
void AtomicWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* value) {
  roci_abi_send_wqe* entry = Begin(qp, IBV_WR_ATOMIC_WRITE);
  if (entry == nullptr) return;
  entry->rkey = rkey;
  entry->remote_va = address;
  memcpy(Payload(entry), value, sizeof(uint64_t));
  entry->inline_length = sizeof(uint64_t);
  entry->flags |= ROCI_ABI_SEND_INLINE;
}

// ---- Setters of the current request

// The request that was begun last; null after an error.
roci_abi_send_wqe* Current(Qp* qp) { return qp->builder.error == 0 ? qp->builder.entry : nullptr; }

void SetSgeList(ibv_qp_ex* qpx, size_t count, const ibv_sge* sges) {
  Qp* qp = ToQp(qpx);
  roci_abi_send_wqe* entry = Current(qp);
  if (entry != nullptr) NoteError(qp->builder, PutSges(qp->sq, entry, sges, count));
}

void SetSge(ibv_qp_ex* qpx, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge = {address, length, lkey};
  SetSgeList(qpx, 1, &sge);
}

void SetInlineList(ibv_qp_ex* qpx, size_t count, const ibv_data_buf* pieces) {
  Qp* qp = ToQp(qpx);
  roci_abi_send_wqe* entry = Current(qp);
  if (entry == nullptr) return;
  NoteError(qp->builder, PutInline(qp->sq, entry, count, [pieces](size_t i) { return pieces[i]; }));
}

void SetInline(ibv_qp_ex* qpx, void* address, size_t length) {
  const ibv_data_buf piece = {address, length};
  SetInlineList(qpx, 1, &piece);
}

void SetDatagramAddress(ibv_qp_ex* qpx, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  Qp* qp = ToQp(qpx);
  roci_abi_send_wqe* entry = Current(qp);
  if (entry == nullptr) return;
  NoteError(qp->builder, PutAddress(qp->sq, ah, remote_qpn, remote_qkey, entry));
}

void SetSharedReceiveQueue(ibv_qp_ex* qpx, uint32_t remote_srqn) {
  roci_abi_send_wqe* entry = Current(ToQp(qpx));
  if (entry != nullptr) entry->remote_srqn = remote_srqn;
}

// The flag of each operation, and a function that sets its call.
struct SendCall {
  uint64_t flag;
  ibv_wr_opcode opcode;
  void (*enable)(ibv_qp_ex* qp);
};
constexpr SendCall kSendCalls[] = {
    {IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE,
     [](ibv_qp_ex* qp) { qp->wr_rdma_write = Write; }},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
     [](ibv_qp_ex* qp) { qp->wr_rdma_write_imm = WriteImmediate; }},
    {IBV_QP_EX_WITH_SEND, IBV_WR_SEND, [](ibv_qp_ex* qp) { qp->wr_send = Send; }},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM,
     [](ibv_qp_ex* qp) { qp->wr_send_imm = SendImmediate; }},
    {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ, [](ibv_qp_ex* qp) { qp->wr_rdma_read = Read; }},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP,
     [](ibv_qp_ex* qp) { qp->wr_atomic_cmp_swp = CompareAndSwap; }},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD,
     [](ibv_qp_ex* qp) { qp->wr_atomic_fetch_add = FetchAndAdd; }},
    {IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV,
     [](ibv_qp_ex* qp) { qp->wr_local_inv = LocalInvalidate; }},
    {IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW, [](ibv_qp_ex* qp) { qp->wr_bind_mw = BindWindow; }},
    {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV,
     [](ibv_qp_ex* qp) { qp->wr_send_inv = SendInvalidate; }},
    {IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE,
     [](ibv_qp_ex* qp) { qp->wr_atomic_write = AtomicWrite; }},
};

}  // namespace

uint64_t SendOperationsOf(const abi::SendOpcodesOfType& opcodes) {
  uint64_t flags = 0;
  for (const SendCall& call : kSendCalls) {
    if ((opcodes.verbs & abi::OpcodeBit(call.opcode)) != 0) flags |= call.flag;
  }
  return flags;
}

void EnableSendCalls(Qp* qp, uint64_t flags) {
  ibv_qp_ex* qpx = &qp->vqp.qp_ex;
  // Before the calls, which may take a place of the flags (provider_api.h).
  auto& tail = qp->vqp.tail;
  tail.flags_of_36 = tail.flags_of_44 = tail.flags_of_45 = VERBS_QP_EX;
  for (const SendCall& call : kSendCalls) {
    if ((flags & call.flag) != 0) call.enable(qpx);
  }
  qpx->wr_start = Start;
  qpx->wr_complete = Complete;
  qpx->wr_abort = Abort;
  qpx->wr_set_sge = SetSge;
  qpx->wr_set_sge_list = SetSgeList;
  qpx->wr_set_inline_data = SetInline;
  qpx->wr_set_inline_data_list = SetInlineList;
  if (qpx->qp_base.qp_type == IBV_QPT_UD) qpx->wr_set_ud_addr = SetDatagramAddress;
  if (qpx->qp_base.qp_type == IBV_QPT_XRC_SEND) qpx->wr_set_xrc_srqn = SetSharedReceiveQueue;
}

}  // namespace roci::provider
