// Work requests into send queue slots.
#include "verbs_provider/send_queue.h"

#include <cerrno>
#include <cstring>

namespace roci::provider {
namespace {

constexpr uint32_t Bit(ibv_wr_opcode opcode) { return 1u << opcode; }

constexpr uint32_t kSends = Bit(IBV_WR_SEND) | Bit(IBV_WR_SEND_WITH_IMM);
constexpr uint32_t kWrites = Bit(IBV_WR_RDMA_WRITE) | Bit(IBV_WR_RDMA_WRITE_WITH_IMM);
constexpr uint32_t kAtomics = Bit(IBV_WR_ATOMIC_CMP_AND_SWP) | Bit(IBV_WR_ATOMIC_FETCH_AND_ADD);
constexpr uint32_t kWindows =
    Bit(IBV_WR_LOCAL_INV) | Bit(IBV_WR_BIND_MW) | Bit(IBV_WR_SEND_WITH_INV);
// Operations whose payload leaves this host, so that it may ride in the slot.
constexpr uint32_t kCarriesData = kSends | kWrites | Bit(IBV_WR_SEND_WITH_INV);

// IBTA vol 1, 10.8.2 (table of operations by transport service).
struct TypeOpcodes {
  ibv_qp_type type;
  SendOpcodes opcodes;
};
constexpr TypeOpcodes kTypeOpcodes[] = {
    {IBV_QPT_RC, {kSends | kWrites | Bit(IBV_WR_RDMA_READ) | kAtomics, kWindows}},
    {IBV_QPT_XRC_SEND, {kSends | kWrites | Bit(IBV_WR_RDMA_READ) | kAtomics, kWindows}},
    {IBV_QPT_UC, {kSends | kWrites, kWindows}},
    {IBV_QPT_UD, {kSends, 0}},
};

constexpr unsigned kSlotFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
constexpr unsigned kKnownFlags = kSlotFlags | IBV_SEND_INLINE;
static_assert(IBV_SEND_FENCE == int{ROCI_ABI_SEND_FENCE});
static_assert(IBV_SEND_SIGNALED == int{ROCI_ABI_SEND_SIGNALED});
static_assert(IBV_SEND_SOLICITED == int{ROCI_ABI_SEND_SOLICITED});
static_assert(IBV_SEND_INLINE == int{ROCI_ABI_SEND_INLINE});
static_assert(sizeof(ibv_sge) == sizeof(roci_abi_sge));
static_assert(offsetof(ibv_sge, length) == offsetof(roci_abi_sge, length));
static_assert(offsetof(ibv_sge, lkey) == offsetof(roci_abi_sge, lkey));

std::byte* Payload(roci_abi_send_wqe* entry) {
  return reinterpret_cast<std::byte*>(entry) + sizeof(*entry);
}

uint64_t TotalLength(const ibv_send_wr& wr) {
  uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  return total;
}

// IBV_SEND_INLINE: the keys are not looked at (ibv_post_send(3)).
int CopyAsked(const SendQueue& queue, const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  const uint64_t total = TotalLength(wr);
  if (total > queue.max_inline || (kCarriesData & (1u << wr.opcode)) == 0) return EINVAL;
  std::byte* out = Payload(entry);
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    memcpy(out, reinterpret_cast<const void*>(sge.addr), sge.length);
    out += sge.length;
  }
  entry->inline_length = static_cast<uint32_t>(total);
  entry->flags |= ROCI_ABI_SEND_INLINE;
  return 0;
}

// Copies a small payload although the app did not ask, if every key is good; a bad one is left to
// the daemon, which completes the request with the right error.
bool CopyUnasked(const SendQueue& queue, const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  std::byte* out = Payload(entry);
  uint32_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length > queue.auto_inline - total) return false;
    const void* data = queue.keys->Find(sge.lkey, queue.pd, sge.addr, sge.length);
    if (data == nullptr) return false;
    memcpy(out + total, data, sge.length);
    total += sge.length;
  }
  entry->inline_length = total;
  entry->flags |= ROCI_ABI_SEND_INLINE;
  return true;
}

void WriteSges(const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  auto* out = reinterpret_cast<roci_abi_sge*>(Payload(entry));
  for (int i = 0; i < wr.num_sge; ++i) {
    out[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  }
  entry->num_sge = static_cast<uint8_t>(wr.num_sge);
}

// The part of the entry that depends on the operation.
int WriteOperation(const SendQueue& queue, const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  if (queue.is_datagram) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    entry->u.ud.address_handle = wr.wr.ud.ah->handle;
    entry->u.ud.remote_qpn = wr.wr.ud.remote_qpn;
    entry->u.ud.remote_qkey = wr.wr.ud.remote_qkey;
    return 0;
  }
  if ((kAtomics & (1u << wr.opcode)) != 0) {
    entry->remote_va = wr.wr.atomic.remote_addr;
    entry->rkey = wr.wr.atomic.rkey;
    entry->u.atomic.compare_add = wr.wr.atomic.compare_add;
    entry->u.atomic.swap = wr.wr.atomic.swap;
  } else {
    entry->remote_va = wr.wr.rdma.remote_addr;
    entry->rkey = wr.wr.rdma.rkey;
  }
  return 0;
}

}  // namespace

SendOpcodes SendOpcodesOf(ibv_qp_type type) {
  for (const TypeOpcodes& row : kTypeOpcodes) {
    if (row.type == type) return row.opcodes;
  }
  return {};
}

int WriteSend(SendQueue& queue, uint32_t index, const ibv_send_wr& wr) {
  if (queue.IsFull(index)) [[unlikely]] {
    return ENOMEM;
  }
  const uint32_t opcode = wr.opcode;
  if (opcode >= 32 || (queue.opcodes.served >> opcode & 1) == 0) [[unlikely]] {
    return opcode < 32 && (queue.opcodes.not_served >> opcode & 1) != 0 ? EOPNOTSUPP : EINVAL;
  }
  // A negative number is far too large here.
  if (static_cast<uint32_t>(wr.num_sge) > queue.max_sge || (wr.send_flags & ~kKnownFlags) != 0)
      [[unlikely]] {
    return EINVAL;
  }
  auto* entry = reinterpret_cast<roci_abi_send_wqe*>(queue.Slot(index));
  *entry = {};
  entry->wr_id = wr.wr_id;
  entry->opcode = static_cast<uint8_t>(opcode);
  entry->flags = static_cast<uint8_t>(wr.send_flags & kSlotFlags);
  entry->immediate = wr.imm_data;
  entry->remote_srqn = wr.qp_type.xrc.remote_srqn;
  const int error = WriteOperation(queue, wr, entry);
  if (error != 0) [[unlikely]] {
    return error;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) return CopyAsked(queue, wr, entry);
  if ((kCarriesData >> opcode & 1) == 0 || wr.num_sge == 0 || !CopyUnasked(queue, wr, entry)) {
    WriteSges(wr, entry);
  }
  return 0;
}

int PostSendList(SendQueue& queue, ibv_send_wr* list, ibv_send_wr** bad) {
  const SpinGuard guard(queue.lock);
  uint32_t head = queue.head;
  int error = 0;
  // A list that runs in a circle ends when the queue is full.
  for (; list != nullptr; list = list->next) {
    error = WriteSend(queue, head, *list);
    if (error != 0) [[unlikely]] {
      *bad = list;
      break;
    }
    ++head;
  }
  if (head != queue.head) {
    queue.head = head;
    Publish(queue.shared, head, queue.bells, queue.handle);
  }
  return error;
}

}  // namespace roci::provider
