// The calls of an extended completion queue: start, next and end of a poll, and the field readers.
#include "verbs_provider/verbs/extended_poll.h"

#include <time.h>

#include "verbs_provider/base/clock.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/poll.h"

namespace roci::provider {
namespace {

Cq* ToCq(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }

// Moves to the next entry that is not skipped. 0, or ENOENT: there is none yet.
int Advance(Cq* cq) {
  for (;;) {
    const roci_abi_cqe* entry = cq->ring.At(cq->polled);
    if (entry == nullptr) return ENOENT;
    ++cq->polled;
    if (entry->status == kSkippedStatus) [[unlikely]] {
      continue;
    }
    cq->current = entry;
    cq->vcq.cq_ex.wr_id = entry->wr_id;
    cq->vcq.cq_ex.status = static_cast<ibv_wc_status>(entry->status);
    FreeWork(cq->session, *entry);
    return 0;
  }
}

// On success, holds the lock and keeps the polled entries until EndPoll.
int StartPoll(ibv_cq_ex* cq_ex, ibv_poll_cq_attr* attr) {
  Cq* cq = ToCq(cq_ex);
  if (attr->comp_mask != 0) return EINVAL;
  if (cq->session->inherited()) [[unlikely]] {
    return EIO;
  }
  cq->lock.Lock();
  cq->polled = cq->ring.consumer;
  if (Advance(cq) == 0) {
    NotePolled();
    return 0;
  }
  if (cq->polled != cq->ring.consumer) cq->ring.PublishConsumer(cq->polled);  // skipped entries
  cq->lock.Unlock();
  const int result = PollEmpty(cq->session);
  return result < 0 ? -result : ENOENT;
}

int NextPoll(ibv_cq_ex* cq) { return Advance(ToCq(cq)); }

void EndPoll(ibv_cq_ex* cq_ex) {
  Cq* cq = ToCq(cq_ex);
  cq->ring.PublishConsumer(cq->polled);
  cq->lock.Unlock();
}

const roci_abi_cqe& Current(ibv_cq_ex* cq) { return *ToCq(cq)->current; }

ibv_wc_opcode ReadOpcode(ibv_cq_ex* cq) { return static_cast<ibv_wc_opcode>(Current(cq).opcode); }
uint32_t ReadVendorError(ibv_cq_ex* cq) { return Current(cq).vendor_error; }
unsigned ReadFlags(ibv_cq_ex* cq) { return Current(cq).flags & kCompletionFlags; }
uint32_t ReadByteLength(ibv_cq_ex* cq) { return Current(cq).byte_length; }
__be32 ReadImmediate(ibv_cq_ex* cq) { return Current(cq).immediate; }
uint32_t ReadQpn(ibv_cq_ex* cq) { return Current(cq).qpn; }
uint32_t ReadSourceQp(ibv_cq_ex* cq) { return Current(cq).source_qpn; }
uint32_t ReadSourceLid(ibv_cq_ex*) { return 0; }  // Ethernet has none
bool IsDatagram(ibv_cq_ex* cq) { return (Current(cq).flags & ROCI_ABI_CQE_GRH) != 0; }
uint8_t ReadServiceLevel(ibv_cq_ex* cq) {
  return IsDatagram(cq) ? Current(cq).datagram.header : uint8_t{0};
}
uint8_t ReadPathBits(ibv_cq_ex*) { return 0; }
// Raw frames keep their tags.
uint16_t ReadVlan(ibv_cq_ex* cq) {
  return IsDatagram(cq) ? Current(cq).datagram.vlan_tci : uint16_t{0};
}
uint32_t ReadFlowTag(ibv_cq_ex* cq) {
  return (Current(cq).flags & (ROCI_ABI_CQE_TAG | ROCI_ABI_CQE_GRH)) != 0 ? 0
                                                                          : Current(cq).flow_tag;
}

// The tag of a completion that reports a match; zeros for others.
void ReadTagInfo(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  const roci_abi_cqe& entry = Current(cq);
  *info = {};
  if ((entry.flags & ROCI_ABI_CQE_TAG_MATCH) == 0) return;
  info->tag = uint64_t{entry.tag_high} << 32 | entry.tag_low;
  info->priv = entry.tag_context;
}
uint64_t ReadTimestamp(ibv_cq_ex* cq) { return Current(cq).timestamp_ns; }

// CLOCK_REALTIME in ns: the entry's CLOCK_MONOTONIC timestamp plus the present offset of the two
// clocks. Keeps the old offset while it differs by at most kJitter_ns, so that the jitter of the
// measurement does not reorder completions.
uint64_t ReadWallClock(ibv_cq_ex* cq_ex) {
  constexpr uint64_t kJitter_ns = 100'000;
  Cq* cq = ToCq(cq_ex);
  const uint64_t offset = ClockNs(CLOCK_REALTIME) - ClockNs(CLOCK_MONOTONIC);
  if (offset - cq->wall_offset + kJitter_ns > 2 * kJitter_ns) cq->wall_offset = offset;
  return ReadTimestamp(cq_ex) + cq->wall_offset;
}

}  // namespace

void EnableExtendedPoll(Cq* cq, uint64_t fields) {
  ibv_cq_ex* out = &cq->vcq.cq_ex;
  const auto has = [fields](uint64_t field) { return (fields & field) != 0; };
  out->start_poll = StartPoll;
  out->next_poll = NextPoll;
  out->end_poll = EndPoll;
  out->read_opcode = ReadOpcode;
  out->read_vendor_err = ReadVendorError;
  out->read_wc_flags = ReadFlags;
  if (has(IBV_WC_EX_WITH_BYTE_LEN)) out->read_byte_len = ReadByteLength;
  if (has(IBV_WC_EX_WITH_IMM)) out->read_imm_data = ReadImmediate;
  if (has(IBV_WC_EX_WITH_QP_NUM)) out->read_qp_num = ReadQpn;
  if (has(IBV_WC_EX_WITH_SRC_QP)) out->read_src_qp = ReadSourceQp;
  if (has(IBV_WC_EX_WITH_SLID)) out->read_slid = ReadSourceLid;
  if (has(IBV_WC_EX_WITH_SL)) out->read_sl = ReadServiceLevel;
  if (has(IBV_WC_EX_WITH_DLID_PATH_BITS)) out->read_dlid_path_bits = ReadPathBits;
  if (has(IBV_WC_EX_WITH_CVLAN)) out->read_cvlan = ReadVlan;
  if (has(IBV_WC_EX_WITH_FLOW_TAG)) out->read_flow_tag = ReadFlowTag;
  if (has(IBV_WC_EX_WITH_TM_INFO)) out->read_tm_info = ReadTagInfo;
  if (has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) out->read_completion_ts = ReadTimestamp;
  if (has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) {
    out->read_completion_wallclock_ns = ReadWallClock;
  }
}

}  // namespace roci::provider
