// Writes one entry of a send queue ring, for ibv_post_send and the ibv_wr_* calls. All inline: this
// is the plugin's hot path.
#pragma once

#include <cerrno>
#include <cstring>

#include "verbs_provider/rings/send_queue.h"

namespace roci::provider {

/// Masks of operations, a bit per opcode.
inline constexpr uint32_t kAtomicOpcodes = abi::OpcodesWhere(
    [](const abi::SendOpcode& row) { return row.fields == abi::SendFields::kAtomic; });
/// Operations that send data, which may be inline in the slot.
inline constexpr uint32_t kDataOpcodes =
    abi::OpcodesWhere([](const abi::SendOpcode& row) { return row.may_be_inline; });
/// Operations without data on this side.
inline constexpr uint32_t kLocalOpcodes =
    abi::OpcodesWhere([](const abi::SendOpcode& row) { return row.local_bytes == 0; });

static_assert(IBV_QPT_RC == int{abi::kQpRc} && IBV_QPT_UC == int{abi::kQpUc} &&
              IBV_QPT_UD == int{abi::kQpUd} && IBV_QPT_RAW_PACKET == int{abi::kQpRawPacket} &&
              IBV_QPT_XRC_SEND == int{abi::kQpXrcSend});
static_assert(IBV_WR_RDMA_WRITE == int{ROCI_ABI_WR_RDMA_WRITE});
static_assert(IBV_WR_RDMA_WRITE_WITH_IMM == int{ROCI_ABI_WR_RDMA_WRITE_WITH_IMM});
static_assert(IBV_WR_SEND == int{ROCI_ABI_WR_SEND});
static_assert(IBV_WR_SEND_WITH_IMM == int{ROCI_ABI_WR_SEND_WITH_IMM});
static_assert(IBV_WR_RDMA_READ == int{ROCI_ABI_WR_RDMA_READ});
static_assert(IBV_WR_ATOMIC_CMP_AND_SWP == int{ROCI_ABI_WR_ATOMIC_CMP_AND_SWP});
static_assert(IBV_WR_ATOMIC_FETCH_AND_ADD == int{ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD});
static_assert(IBV_WR_LOCAL_INV == int{ROCI_ABI_WR_LOCAL_INV});
static_assert(IBV_WR_BIND_MW == int{ROCI_ABI_WR_BIND_MW});
static_assert(IBV_WR_SEND_WITH_INV == int{ROCI_ABI_WR_SEND_WITH_INV});
static_assert(IBV_WR_TSO == int{ROCI_ABI_WR_TSO});
static_assert(IBV_WR_ATOMIC_WRITE == int{ROCI_ABI_WR_ATOMIC_WRITE});
static_assert(IBV_SEND_FENCE == int{ROCI_ABI_SEND_FENCE});
static_assert(IBV_SEND_SIGNALED == int{ROCI_ABI_SEND_SIGNALED});
static_assert(IBV_SEND_SOLICITED == int{ROCI_ABI_SEND_SOLICITED});
static_assert(IBV_SEND_INLINE == int{ROCI_ABI_SEND_INLINE});
static_assert(IBV_SEND_IP_CSUM == int{ROCI_ABI_SEND_IP_CHECKSUM});
static_assert(sizeof(ibv_sge) == sizeof(roci_abi_sge));
static_assert(offsetof(ibv_sge, length) == offsetof(roci_abi_sge, length));
static_assert(offsetof(ibv_sge, lkey) == offsetof(roci_abi_sge, lkey));

inline bool CarriesData(const roci_abi_send_wqe* entry) {
  return (kDataOpcodes >> entry->opcode & 1) != 0;
}

inline std::byte* Payload(roci_abi_send_wqe* entry) {
  return reinterpret_cast<std::byte*>(entry) + sizeof(*entry);
}

/// Writes the address of a datagram. 0, or EINVAL: there is no address handle, or it is of another
/// session, as a forked child's inherited ones are, where its number means another one.
inline int PutAddress(const SendQueue& queue, const ibv_ah* ah, uint32_t remote_qpn,
                      uint32_t remote_qkey, roci_abi_send_wqe* entry) {
  if (ah == nullptr || reinterpret_cast<const AhHead*>(ah)->session != queue.session) [[unlikely]]
    return EINVAL;
  entry->u.ud.address_handle = ah->handle;
  entry->u.ud.remote_qpn = remote_qpn;
  entry->u.ud.remote_qkey = remote_qkey;
  return 0;
}

/// Writes the window, the region and the range of a bind request. The program chooses the low 8
/// bits of the new R_Key, which are those of `new_key`; the other bits identify the window (IBTA
/// vol 1, 10.6.7.2.2 and 11.2.8.12). `mw.rkey` has the new key at once (ibv_bind_mw(3)); if the
/// bind fails, the program restores the old one.
inline void PutBinding(roci_abi_send_wqe* entry, ibv_mw& mw, uint32_t new_key,
                       const ibv_mw_bind_info& info) {
  constexpr uint32_t kChosenByApp = 0xFF;
  // The key identifies the window, as on adapters. mw.handle is not used: the program can overwrite
  // it.
  mw.rkey = (mw.rkey & ~kChosenByApp) | (new_key & kChosenByApp);
  entry->remote_va = info.addr;
  entry->u.bind.length = info.length;
  entry->u.bind.window = mw.rkey >> 8;
  entry->u.bind.access = info.mw_access_flags;
  entry->u.bind.region_key = info.mr != nullptr ? info.mr->lkey : 0;
  entry->u.bind.new_key = mw.rkey;
}

inline bool IsMisplaced(const SendQueue& queue, uint32_t opcode) {
  return (queue.opcodes.misplaced >> opcode & 1) != 0;
}

/// Begins entry `index`. `served`: the operations that the caller's call may post, one of
/// `queue.opcodes`. Null with `*error` ENOMEM (full), EOPNOTSUPP (an operation that the type would
/// have, but this device does not support) or EINVAL (other operations, flags). An operation of
/// `queue.opcodes.misplaced` is taken; its entry needs no more.
inline roci_abi_send_wqe* BeginEntry(SendQueue& queue, uint32_t index, uint32_t served,
                                     uint32_t opcode, uint64_t wr_id, unsigned flags, int* error) {
  if (queue.IsFull(index)) [[unlikely]] {
    *error = ENOMEM;
    return nullptr;
  }
  const bool is_in_table = opcode < abi::kSendOpcodeCount;
  if (!is_in_table || (served >> opcode & 1) == 0 ||
      (flags & ~(queue.slot_flags | IBV_SEND_INLINE)) != 0) [[unlikely]] {
    const bool is_unsupported = is_in_table && (queue.opcodes.unsupported >> opcode & 1) != 0;
    if (!is_in_table || !IsMisplaced(queue, opcode) || is_unsupported) {
      *error = is_unsupported ? EOPNOTSUPP : EINVAL;
      return nullptr;
    }
  }
  auto* entry = reinterpret_cast<roci_abi_send_wqe*>(queue.Slot(index));
  *entry = {};
  entry->wr_id = wr_id;
  entry->opcode = static_cast<uint8_t>(opcode);
  entry->flags = static_cast<uint8_t>(flags & queue.slot_flags);
  return entry;
}

/// Copies inline data (IBV_SEND_INLINE) into the entry. `piece_at(i)` returns piece i; local keys
/// are not checked (ibv_post_send(3)). 0, or EINVAL: too long, or the operation sends no data.
template <class PieceAt>
int PutInline(const SendQueue& queue, roci_abi_send_wqe* entry, size_t count, PieceAt piece_at) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const ibv_data_buf piece = piece_at(i);
    // Checked piece by piece, because the sum of the lengths may wrap.
    if (piece.length > queue.max_inline - total || !CarriesData(entry)) return EINVAL;
    if (piece.length != 0) memcpy(Payload(entry) + total, piece.addr, piece.length);
    total += piece.length;
  }
  entry->inline_length = static_cast<uint32_t>(total);
  entry->flags |= ROCI_ABI_SEND_INLINE;
  return 0;
}

/// Copies a small payload into the entry without IBV_SEND_INLINE. False if it is too long, if a key
/// is unknown (the daemon then completes the request with the right error), or if the request has a
/// fence: an earlier READ may still have to write the payload.
inline bool TryCopy(const SendQueue& queue, roci_abi_send_wqe* entry, const ibv_sge* sges,
                    size_t count) {
  if ((entry->flags & ROCI_ABI_SEND_FENCE) != 0) return false;
  std::byte* out = Payload(entry);
  uint32_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const ibv_sge& sge = sges[i];
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

/// Writes the SGEs, or copies a small payload. 0, or EINVAL: too many SGEs.
inline int PutSges(const SendQueue& queue, roci_abi_send_wqe* entry, const ibv_sge* sges,
                   size_t count) {
  if (count > queue.max_sge) [[unlikely]] {
    return EINVAL;
  }
  if (CarriesData(entry) && count != 0 && TryCopy(queue, entry, sges, count)) return 0;
  auto* out = reinterpret_cast<roci_abi_sge*>(Payload(entry));
  for (size_t i = 0; i < count; ++i) out[i] = {sges[i].addr, sges[i].length, sges[i].lkey};
  entry->num_sge = static_cast<uint8_t>(count);
  return 0;
}

}  // namespace roci::provider
