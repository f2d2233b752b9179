// Definitions of Requester. Included by qp_inl.h only.
#pragma once

#include <bit>
#include <cassert>
#include <cstring>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

template <class Host>
Requester<Host>::Requester(QpContext& context, std::span<SendRecord> records)
    : context_(context),
      records_(records.data()),
      mask_(static_cast<uint32_t>(records.size()) - 1) {
  assert(std::has_single_bit(records.size()));
}

template <class Host>
void Requester<Host>::Reset() {
  Start(Psn());
  more_work_ = false;
}

template <class Host>
void Requester<Host>::Start(Psn sq_psn) {
  head_ = cursor_ = tail_ = 0;
  una_ = send_psn_ = sent_end_ = next_psn_ = sq_psn;
  rd_atomic_outstanding_ = 0;
  since_ack_request_ = 0;
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  rnr_waiting_ = false;
  recovering_ = false;
  deadline_ = kNever;
  more_work_ = true;
}

// ---- Sending ----

namespace requester_internal {
// A malformed request (FetchResult::kBad) may hold any byte as its opcode; tables are indexed by
// it.
inline void SanitizeOpcode(SendWqe& wqe) {
  if (static_cast<size_t>(wqe.opcode) >= kWorkOpcodeCount) wqe.opcode = WorkOpcode::kSend;
}
}  // namespace requester_internal

template <class Host>
bool Requester<Host>::CanTransmit() const {
  const QpState state = context_.state();
  if (state != QpState::kRts && state != QpState::kSqd) return false;
  if (!context_.IsReliable() && head_ != cursor_) return true;  // to be reported
  if (rnr_waiting_ || !WindowOpen()) return false;
  if (cursor_ == tail_) return state == QpState::kRts && more_work_ && tail_ - head_ <= mask_;
  const SendRecord& record = At(cursor_);
  return !record.failed && MayStart(record);
}

// Whether the first packet of `record` may go now. SQD finishes what was begun and begins nothing
// (IBTA vol 1, 10.3.1.5); a fence waits for all READs and atomics before it (10.8.3.3).
template <class Host>
bool Requester<Host>::MayStart(const SendRecord& record) const {
  if (record.started) return true;
  if (context_.state() == QpState::kSqd) return false;
  if (record.wqe.fence && rd_atomic_outstanding_ != 0) return false;
  const WorkClass work_class = InfoOf(record.wqe.opcode).work_class;
  if (work_class != WorkClass::kRead && work_class != WorkClass::kAtomic) return true;
  if (rd_atomic_outstanding_ >= context_.attributes.max_rd_atomic) return false;
  // Never more PSNs in flight than the half of the space that a responder can tell from the other.
  return InFlight() == 0 || InFlight() + record.packets <= kMaxPsnsInFlight;
}

template <class Host>
bool Requester<Host>::Poll(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (!context_.IsReliable() && head_ != cursor_) ReportSent(host);
  if (!CanTransmit()) return false;
  if (cursor_ == tail_ && !FetchNext(host)) return false;
  SendRecord& record = At(cursor_);
  if (record.failed || !MayStart(record)) [[unlikely]] {
    return false;
  }
  return BuildPacket(host, now, record, out, payload);
}

// Takes one work request into the ring. False: there is none.
template <class Host>
bool Requester<Host>::FetchNext(Host& host) {
  SendRecord& record = At(tail_);
  CompletionStatus status = CompletionStatus::kLocalQpOperationError;
  const FetchResult result = host.FetchSend(record.wqe, status);
  if (result == FetchResult::kEmpty) {
    more_work_ = false;
    return false;
  }
  requester_internal::SanitizeOpcode(record.wqe);
  if (result == FetchResult::kOk) [[likely]] {
    status =
        CheckSendWqe(record.wqe, context_.config.type, context_.mtu_bytes(),
                     context_.config.limits.max_message_bytes, context_.attributes.max_rd_atomic);
  }
  record.first_psn = next_psn_;
  record.packets = 0;
  record.received = 0;
  record.started = false;
  record.failed = false;
  ++tail_;
  if (result == FetchResult::kBad || status != CompletionStatus::kSuccess) [[unlikely]] {
    FailRecord(host, tail_ - 1, status);
    return false;
  }
  const bool is_read = InfoOf(record.wqe.opcode).work_class == WorkClass::kRead;
  const bool is_segmented = InfoOf(record.wqe.opcode).work_class == WorkClass::kSegmented;
  record.packets = is_read || is_segmented ? PacketsOf(record.wqe.length, context_.mtu_shift) : 1;
  next_psn_ += record.packets;
  return true;
}

template <class Host>
bool Requester<Host>::BuildPacket(Host& host, TimeNs now, SendRecord& record, TxPacket& out,
                                  memory::SegmentList& payload) {
  const WorkInfo& info = InfoOf(record.wqe.opcode);
  out.solicited = false;
  out.ack_request = true;
  out.fecn = false;
  out.becn = false;
  out.psn = send_psn_;
  out.dest_qpn = context_.attributes.dest_qpn;
  out.payload_length = 0;
  uint32_t psns = 1;
  if (info.work_class == WorkClass::kSegmented) [[likely]] {
    if (!BuildSegmented(host, info, record, out, payload)) [[unlikely]] {
      return false;
    }
  } else if (info.work_class == WorkClass::kRead) {
    psns = BuildRead(info, record, out);
  } else {
    BuildAtomic(info, record, out);
  }
  out.opcode = WithTransport(out.opcode, TransportOf(context_.config.type));
  out.ext.xrc.srq_number = record.wqe.remote_srq_number;
  NoteSent(host, now, record, psns);
  return true;
}

// One packet of a SEND or WRITE (IBTA vol 1, 9.4.1, 9.4.3). The payload is read again for every
// retransmission. False: the data cannot be had, the request fails.
template <class Host>
bool Requester<Host>::BuildSegmented(Host& host, const WorkInfo& info, SendRecord& record,
                                     TxPacket& out, memory::SegmentList& payload) {
  const SendWqe& wqe = record.wqe;
  const uint32_t index = StepsForward(record.first_psn, send_psn_);
  assert(index < record.packets);
  const uint32_t offset = index << context_.mtu_shift;
  const uint32_t left = wqe.length - offset;
  const uint32_t bytes = left < context_.mtu_bytes() ? left : context_.mtu_bytes();
  if (bytes != 0 && host.GatherSend(wqe, offset, bytes, payload) != memory::MemoryStatus::kOk)
      [[unlikely]] {
    FailRecord(host, cursor_, CompletionStatus::kLocalProtectionError);
    return false;
  }
  out.payload_length = bytes;
  const Position position = PositionOf(index, record.packets);
  const bool is_last = position == Position::kLast || position == Position::kOnly;
  switch (position) {
    case Position::kFirst:
      out.opcode = info.first;
      break;
    case Position::kMiddle:
      out.opcode = info.middle;
      break;
    case Position::kLast:
      out.opcode = info.last;
      break;
    case Position::kOnly:
      out.opcode = info.only;
      break;
  }
  if (info.has_reth && index == 0) out.ext.reth = Reth{wqe.remote_va, wqe.rkey, wqe.length};
  if (is_last) {
    // The solicited event bit means something only where a receive completes (9.2.3).
    out.solicited = wqe.solicited && (!info.has_reth || info.has_immediate);
    if (info.has_immediate) out.ext.imm.value = SwapNetworkOrder(wqe.immediate);
    if (info.has_invalidate) out.ext.ieth.rkey = Key(wqe.immediate);
  }
  if (context_.config.type == QpType::kUd) {
    out.dest_qpn = wqe.remote_qpn;
    // A Q_Key with the top bit set means the QP's own (10.2.5).
    const bool use_own = (wqe.remote_qkey >> 31) != 0;
    out.ext.deth = Deth{use_own ? context_.attributes.qkey : wqe.remote_qkey, context_.config.qpn};
    address_handle_ = wqe.address_handle;
  }
  out.ack_request = context_.IsReliable() && WantsAck(is_last);
  return true;
}

// On the last packet of a message, every so many packets of a long one, and on the packet that
// closes the window, for nothing more could be sent until it is acknowledged.
template <class Host>
bool Requester<Host>::WantsAck(bool is_last) {
  const QpLimits& limits = context_.config.limits;
  ++since_ack_request_;
  if (!is_last && since_ack_request_ < limits.ack_every_packets &&
      InFlight() + 1 < limits.window_packets) {
    return false;
  }
  since_ack_request_ = 0;
  return true;
}

// The whole READ, or what is left of it after a loss (IBTA vol 1, 9.7.5.1.9). Returns the PSNs it
// takes.
template <class Host>
uint32_t Requester<Host>::BuildRead(const WorkInfo& info, const SendRecord& record, TxPacket& out) {
  const uint32_t index = StepsForward(record.first_psn, send_psn_);
  assert(index < record.packets);
  const uint32_t offset = index << context_.mtu_shift;
  out.opcode = info.only;
  out.ext.reth = Reth{record.wqe.remote_va + offset, record.wqe.rkey, record.wqe.length - offset};
  return record.packets - index;
}

template <class Host>
void Requester<Host>::BuildAtomic(const WorkInfo& info, const SendRecord& record, TxPacket& out) {
  const SendWqe& wqe = record.wqe;
  const bool is_swap = wqe.opcode == WorkOpcode::kCompareSwap;
  out.opcode = info.only;
  out.ext.atomic = AtomicEth{wqe.remote_va, wqe.rkey, is_swap ? wqe.swap : wqe.compare_add,
                             is_swap ? wqe.compare_add : 0};
}

template <class Host>
void Requester<Host>::NoteSent(Host& host, TimeNs now, SendRecord& record, uint32_t psns) {
  if (send_psn_ == sent_end_) [[likely]] {
    sent_end_ += psns;
  } else {
    host.Count(QpCounter::kRetransmittedPackets);
    const uint32_t ahead = StepsForward(send_psn_, sent_end_);
    if (ahead < psns) sent_end_ += psns - ahead;
  }
  send_psn_ += psns;
  if (!record.started) {
    record.started = true;
    const WorkClass work_class = InfoOf(record.wqe.opcode).work_class;
    if (work_class != WorkClass::kSegmented) ++rd_atomic_outstanding_;
  }
  const bool is_complete = send_psn_ == record.first_psn + record.packets;
  if (is_complete) ++cursor_;
  if (context_.IsReliable()) [[likely]] {
    if (deadline_ == kNever) ArmTimer(now);
    return;
  }
  // Nobody answers: sent is done. It is reported by the next Poll, when it is known that the
  // payload could be read.
  una_ = send_psn_;
}

template <class Host>
void Requester<Host>::ReportSent(Host& host) {
  while (head_ != cursor_ && !At(head_).failed) CompleteHead(host, CompletionStatus::kSuccess);
  if (head_ != tail_ && At(head_).failed) FailHead(host, At(head_).local_status);
}

// ---- Answers ----

template <class Host>
DropReason Requester<Host>::HandleResponse(Host& host, TimeNs now, const Packet& packet) {
  if (StepsForward(una_, packet.psn) >= StepsForward(una_, sent_end_)) [[unlikely]] {
    // Before the window: a duplicate. Behind it: for something never sent (9.7.5.1.3, "ghost").
    return Distance(una_, packet.psn) < 0 ? DropReason::kStaleAcknowledge
                                          : DropReason::kGhostAcknowledge;
  }
  switch (packet.info->operation) {
    case Operation::kAcknowledge:
      return HandleAcknowledge(host, now, packet.psn, packet.ext.aeth);
    case Operation::kReadResponse:
      return HandleReadResponse(host, now, packet);
    case Operation::kAtomicAcknowledge:
      return HandleAtomicResponse(host, now, packet);
    default:
      return DropReason::kUnexpectedOpcode;
  }
}

template <class Host>
DropReason Requester<Host>::HandleAcknowledge(Host& host, TimeNs now, Psn psn, Aeth aeth) {
  switch (aeth.kind()) {
    case AethKind::kAck:
      if (!AcknowledgeBefore(host, now, psn + 1)) ImplyNak(host);
      return DropReason::kNone;
    case AethKind::kRnrNak:
      return HandleRnrNak(host, now, psn, aeth.value());
    case AethKind::kNak:
      return HandleNak(host, now, psn, aeth.value());
    default:
      return DropReason::kInvalidAcknowledge;
  }
}

// Completes what an acknowledgement of everything before `end` can complete. False: it covers a
// READ or atomic whose response has not come, so the response is lost (implied NAK, 9.7.5.1.? ).
template <class Host>
bool Requester<Host>::AcknowledgeBefore(Host& host, TimeNs now, Psn end) {
  bool is_complete = true;
  const Psn before = una_;
  while (una_ != end && head_ != tail_) {
    SendRecord& record = At(head_);
    if (record.failed) break;
    if (InfoOf(record.wqe.opcode).work_class != WorkClass::kSegmented) {
      is_complete = false;
      break;
    }
    const uint32_t covered = StepsForward(una_, end);
    const uint32_t left = StepsForward(una_, record.first_psn + record.packets);
    if (covered < left) {
      una_ = end;
      break;
    }
    una_ += left;
    CompleteHead(host, CompletionStatus::kSuccess);
  }
  if (una_ != before) Progress(host, now);
  return is_complete;
}

// Something was acknowledged: loss recovery starts from new (IBTA vol 1, 9.9.2.1.1).
template <class Host>
void Requester<Host>::Progress(Host& host, TimeNs now) {
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  recovering_ = false;
  // Acknowledged beyond the point to which we had gone back.
  if (StepsForward(una_, send_psn_) > StepsForward(una_, sent_end_)) Rewind();
  rnr_waiting_ = false;  // what was not ready is acknowledged after all
  deadline_ = kNever;
  if (send_psn_ != una_) ArmTimer(now);
  if (head_ != tail_ && At(head_).failed) [[unlikely]] {
    FailHead(host, At(head_).local_status);
  }
}

template <class Host>
DropReason Requester<Host>::HandleReadResponse(Host& host, TimeNs now, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  if (info.Has(ExtHeader::kAeth) && packet.ext.aeth.kind() != AethKind::kAck) {
    return DropReason::kInvalidAcknowledge;
  }
  if (!AcknowledgeBefore(host, now, packet.psn)) return ImplyNak(host);
  if (!HeadAwaits(WorkClass::kRead, packet.psn)) return DropReason::kUnexpectedOpcode;
  SendRecord& record = At(head_);
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (!ReadResponseFits(info.position, bytes, record.received, record.wqe.length,
                        context_.mtu_shift)) [[unlikely]] {
    FailHead(host, CompletionStatus::kBadResponse);
    return DropReason::kPayloadLength;
  }
  const uint32_t offset = record.received << context_.mtu_shift;
  if (!PlaceResponse(host, record.wqe, offset, packet.payload)) [[unlikely]] {
    FailHead(host, CompletionStatus::kLocalProtectionError);
    return DropReason::kMemoryAccess;
  }
  ++una_;
  if (++record.received == record.packets) CompleteHead(host, CompletionStatus::kSuccess);
  Progress(host, now);
  return DropReason::kNone;
}

template <class Host>
DropReason Requester<Host>::HandleAtomicResponse(Host& host, TimeNs now, const Packet& packet) {
  if (packet.ext.aeth.kind() != AethKind::kAck) return DropReason::kInvalidAcknowledge;
  if (!AcknowledgeBefore(host, now, packet.psn)) return ImplyNak(host);
  if (!HeadAwaits(WorkClass::kAtomic, packet.psn)) return DropReason::kUnexpectedOpcode;
  std::byte original[sizeof(uint64_t)];
  std::memcpy(original, &packet.ext.atomic_ack.original, sizeof(original));
  if (!PlaceResponse(host, At(head_).wqe, 0, original)) [[unlikely]] {
    FailHead(host, CompletionStatus::kLocalProtectionError);
    return DropReason::kMemoryAccess;
  }
  ++una_;
  CompleteHead(host, CompletionStatus::kSuccess);
  Progress(host, now);
  return DropReason::kNone;
}

// The oldest request is of that kind, not failed, and `psn` is what it waits for.
template <class Host>
bool Requester<Host>::HeadAwaits(WorkClass work_class, Psn psn) const {
  if (context_.error_pending || head_ == tail_ || una_ != psn) return false;
  const SendRecord& record = At(head_);
  return !record.failed && record.started && InfoOf(record.wqe.opcode).work_class == work_class;
}

template <class Host>
bool Requester<Host>::PlaceResponse(Host& host, const SendWqe& wqe, uint32_t offset,
                                    std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  memory::SegmentList segments;
  return host.ScatterSend(wqe, offset, static_cast<uint32_t>(bytes.size()), segments) ==
             memory::MemoryStatus::kOk &&
         host.Place(segments, bytes) == memory::MemoryStatus::kOk;
}

// ---- Recovery ----

template <class Host>
DropReason Requester<Host>::ImplyNak(Host& host) {
  if (recovering_ || rnr_waiting_) return DropReason::kOutOfSequence;
  Retry(host, QpCounter::kImpliedNaks);
  return DropReason::kOutOfSequence;
}

// IBTA vol 1, 9.7.5.2: a NAK acknowledges everything before its PSN.
template <class Host>
DropReason Requester<Host>::HandleNak(Host& host, TimeNs now, Psn psn, uint8_t code) {
  if (code != static_cast<uint8_t>(NakCode::kPsnSequenceError)) {
    FailAt(host, psn, StatusOfNak(code));
    return DropReason::kNone;
  }
  if (!AcknowledgeBefore(host, now, psn)) return ImplyNak(host);
  if (una_ != psn || context_.error_pending) return DropReason::kNone;
  if (recovering_ || rnr_waiting_) return DropReason::kStaleAcknowledge;
  Retry(host, QpCounter::kPacketSequenceErrors);
  return DropReason::kNone;
}

// IBTA vol 1, 9.7.5.2.8 and 9.9.2.1.2.
template <class Host>
DropReason Requester<Host>::HandleRnrNak(Host& host, TimeNs now, Psn psn, uint8_t timer_code) {
  if (!AcknowledgeBefore(host, now, psn)) return ImplyNak(host);
  if (una_ != psn || context_.error_pending) return DropReason::kNone;
  if (rnr_waiting_) return DropReason::kStaleAcknowledge;
  host.Count(QpCounter::kRnrNaksReceived);
  if (context_.attributes.rnr_retry != kRetryForEver) {
    if (rnr_retries_left_ == 0) {
      FailHead(host, CompletionStatus::kRnrRetryExceeded);
      return DropReason::kNone;
    }
    --rnr_retries_left_;
  }
  Rewind();
  rnr_waiting_ = true;
  recovering_ = true;
  deadline_ = now + kRnrTimerNs[timer_code];
  return DropReason::kNone;
}

template <class Host>
void Requester<Host>::HandleTimeout(Host& host, TimeNs now) {
  if (now < deadline_ || deadline_ == kNever) return;
  if (rnr_waiting_) {
    rnr_waiting_ = false;
    deadline_ = kNever;
    return;
  }
  Retry(host, QpCounter::kAckTimeouts);
}

// Goes back to the oldest unacknowledged PSN, if the retry counter allows.
template <class Host>
void Requester<Host>::Retry(Host& host, QpCounter reason) {
  host.Count(reason);
  if (retries_left_ == 0) {
    FailHead(host, CompletionStatus::kRetryExceeded);
    return;
  }
  --retries_left_;
  recovering_ = true;
  Rewind();
  deadline_ = kNever;  // armed by the first packet that is sent again
}

template <class Host>
void Requester<Host>::Rewind() {
  send_psn_ = una_;
  cursor_ = head_;
}

template <class Host>
void Requester<Host>::ArmTimer(TimeNs now) {
  const uint64_t timeout_ns = AckTimeoutNs(context_.attributes.timeout);
  deadline_ = timeout_ns == kNever ? kNever : now + timeout_ns;
}

// ---- Completion ----

template <class Host>
void Requester<Host>::CompleteHead(Host& host, CompletionStatus status) {
  SendRecord& record = At(head_);
  const WorkInfo& info = InfoOf(record.wqe.opcode);
  const bool is_answered =
      info.work_class == WorkClass::kRead || info.work_class == WorkClass::kAtomic;
  if (is_answered && record.started) --rd_atomic_outstanding_;
  Completion completion{};
  completion.wr_id = record.wqe.wr_id;
  completion.slot = record.wqe.slot;
  if (info.work_class == WorkClass::kRead) completion.byte_length = record.wqe.length;
  if (info.work_class == WorkClass::kAtomic) completion.byte_length = 8;
  completion.status = status;
  completion.opcode = info.completion;
  completion.signaled =
      record.wqe.signaled || context_.config.sq_sig_all || status != CompletionStatus::kSuccess;
  ++head_;
  host.CompleteSend(completion);
}

// A request that fails on this side waits for those before it, so that they keep their own fate;
// nothing after it is sent.
template <class Host>
void Requester<Host>::FailRecord(Host& host, uint32_t index, CompletionStatus status) {
  SendRecord& record = At(index);
  record.failed = true;
  record.local_status = status;
  if (index == head_) FailHead(host, status);
}

template <class Host>
void Requester<Host>::FailHead(Host& host, CompletionStatus status) {
  assert(head_ != tail_);
  host.Count(CounterOfFailure(status));
  host.Count(QpCounter::kReqCqeErrors);
  CompleteHead(host, status);
  deadline_ = kNever;
  rnr_waiting_ = false;
  (context_.IsReliable() ? context_.error_pending : context_.send_error_pending) = true;
}

// A fatal NAK: what was before it is done, its own request fails. A READ or atomic before it whose
// answer never came will not get one any more: flushed.
template <class Host>
void Requester<Host>::FailAt(Host& host, Psn psn, CompletionStatus status) {
  while (head_ != tail_) {
    SendRecord& record = At(head_);
    if (record.failed) {
      FailHead(host, record.local_status);
      return;
    }
    const Psn end = record.first_psn + record.packets;
    if (StepsForward(una_, psn) < StepsForward(una_, end)) {
      FailHead(host, status);
      return;
    }
    una_ = end;
    const bool is_segmented = InfoOf(record.wqe.opcode).work_class == WorkClass::kSegmented;
    CompleteHead(host,
                 is_segmented ? CompletionStatus::kSuccess : CompletionStatus::kWorkRequestFlushed);
  }
}

template <class Host>
void Requester<Host>::HandleTransmitFault(Host& host, Psn psn) {
  for (uint32_t i = head_; i != tail_; ++i) {
    const SendRecord& record = At(i);
    if (!InWindow(psn, record.first_psn, record.packets)) continue;
    // The packet was never sent: what follows it must not go either, so that the peer sees a gap.
    cursor_ = i;
    send_psn_ = psn;
    if (!context_.IsReliable()) una_ = sent_end_ = psn;
    FailRecord(host, i, CompletionStatus::kLocalProtectionError);
    return;
  }
}

template <class Host>
bool Requester<Host>::Flush(Host& host, uint32_t budget) {
  deadline_ = kNever;
  rnr_waiting_ = false;
  for (; budget != 0; --budget) {
    if (head_ == tail_) {
      SendRecord& record = At(tail_);
      CompletionStatus ignored{};
      if (host.FetchSend(record.wqe, ignored) == FetchResult::kEmpty) break;
      requester_internal::SanitizeOpcode(record.wqe);
      record.started = false;
      ++tail_;
    }
    host.Count(QpCounter::kReqCqeFlushErrors);
    CompleteHead(host, CompletionStatus::kWorkRequestFlushed);
  }
  cursor_ = head_;
  una_ = sent_end_ = next_psn_ = send_psn_;  // for a send queue that is taken up again after SQE
  return budget != 0;
}

template <class Host>
void Requester<Host>::Describe(RequesterDebug& out) const {
  out.oldest_unacknowledged = una_;
  out.next_to_send = send_psn_;
  out.end_of_sent = sent_end_;
  out.next_new = next_psn_;
  out.records = tail_ - head_;
  out.rd_atomic_outstanding = rd_atomic_outstanding_;
  out.retries_left = retries_left_;
  out.rnr_retries_left = rnr_retries_left_;
  out.rnr_waiting = rnr_waiting_;
  out.recovering = recovering_;
  out.deadline = deadline_;
}

}  // namespace roci::roce
