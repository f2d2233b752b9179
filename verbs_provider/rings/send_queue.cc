// Writes work requests into send queue slots: ibv_post_send.
#include "verbs_provider/rings/send_queue.h"

#include "verbs_provider/rings/post_list.h"
#include "verbs_provider/rings/send_entry.h"

namespace roci::provider {
namespace {

// The part of the entry that depends on the operation.
int PutOperation(const SendQueue& queue, const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  if (queue.is_datagram) {
    return PutAddress(queue, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey, entry);
  }
  if (entry->opcode == IBV_WR_BIND_MW) [[unlikely]] {
    if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
    PutBinding(entry, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
    return 0;
  }
  if ((kAtomicOpcodes >> entry->opcode & 1) != 0) {
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

int PutPayload(const SendQueue& queue, const ibv_send_wr& wr, roci_abi_send_wqe* entry) {
  if ((kLocalOpcodes >> entry->opcode & 1) != 0) [[unlikely]] {
    return 0;
  }
  const auto count = static_cast<uint32_t>(wr.num_sge);  // a negative number becomes a large one
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return PutSges(queue, entry, wr.sg_list, count);
  if (count > queue.max_sge || !CarriesData(entry)) return EINVAL;
  return PutInline(queue, entry, count, [&wr](size_t i) {
    const ibv_sge& sge = wr.sg_list[i];
    return ibv_data_buf{reinterpret_cast<void*>(sge.addr), sge.length};
  });
}

}  // namespace

unsigned SlotFlagsOf(ibv_qp_type type, bool fills_checksums) {
  const unsigned flags = abi::SendFlagsOf(type) & ~unsigned{ROCI_ABI_SEND_INLINE};
  return fills_checksums ? flags : flags & ~unsigned{ROCI_ABI_SEND_IP_CHECKSUM};
}

int WriteSend(SendQueue& queue, uint32_t index, const ibv_send_wr& wr) {
  int error = 0;
  uint32_t opcode;  // not ibv_wr_opcode: the program's value may be outside the enumeration
  memcpy(&opcode, &wr.opcode, sizeof(opcode));
  roci_abi_send_wqe* entry =
      BeginEntry(queue, index, queue.opcodes.verbs, opcode, wr.wr_id, wr.send_flags, &error);
  if (entry == nullptr) [[unlikely]] {
    return error;
  }
  // Its fields are not those of this queue's requests.
  if (IsMisplaced(queue, opcode)) [[unlikely]] {
    return 0;
  }
  entry->immediate = wr.imm_data;
  entry->remote_srqn = wr.qp_type.xrc.remote_srqn;
  error = PutOperation(queue, wr, entry);
  return error != 0 ? error : PutPayload(queue, wr, entry);
}

int PostSendList(SendQueue& queue, ibv_send_wr* list, ibv_send_wr** bad) {
  queue.PrefetchHeader();
  const SpinGuard guard(queue.lock);
  queue.RestartIfEmpty();
  queue.PrefetchSlots();
  return PostList(queue, list, bad, [&queue](uint32_t index, const ibv_send_wr& wr) {
    return WriteSend(queue, index, wr);
  });
}

}  // namespace roci::provider
