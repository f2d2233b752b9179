// Definitions of Requester: answers, loss recovery, completions. Included by qp_inl.h only.
#pragma once

#include <cassert>
#include <cstring>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

template <class Host>
PacketEffects Requester<Host>::HandleResponse(Host& host, TimeNs now, const Packet& packet) {
  if (StepsForward(una_, packet.psn) >= StepsForward(una_, sent_end_)) [[unlikely]] {
    // Before the window: a duplicate. After it: for a request never sent (a "ghost", 9.7.6).
    return {Distance(una_, packet.psn) < 0 ? HandleStale(packet) : DropReason::kGhostAcknowledge};
  }
  if (packet.info->Has(ExtHeader::kMissing)) [[unlikely]]
    return {HandleSelectiveNak(host, now, packet)};
  PacketEffects effects;
  if (context_.reorder != nullptr && MustKeep(host, now, packet, effects)) [[unlikely]] {
    return effects;
  }
  const DropReason reason = HandleAnswer(host, now, packet);
  if (reason == DropReason::kNone && packet.info->Has(ExtHeader::kAeth) &&
      packet.ext.aeth.kind() == AethKind::kAck) [[likely]] {
    TakeCredits(packet.ext.aeth);
  }
  if (held_back_ && !credit_waiting_ && IsDrained()) [[unlikely]]
    AwaitCredit(now);
  return {.reason = reason, .early = awaits_kept_ ? ContinueKept(now) : EarlyAction::kNone};
}

// An unsolicited ACK with credits repeats the PSN of an earlier answer.
template <class Host>
DropReason Requester<Host>::HandleStale(const Packet& packet) {
  const Aeth aeth = packet.ext.aeth;
  if (packet.info->operation != Operation::kAcknowledge || packet.info->Has(ExtHeader::kMissing) ||
      aeth.kind() != AethKind::kAck || aeth.value() == kNoCredits || !TakeCredits(aeth)) {
    return DropReason::kStaleAcknowledge;
  }
  expects_updates_ = true;
  return DropReason::kNone;
}

// Credits count from the AETH's MSN. If that is ahead of the requests completed here, the limit
// comes out too low until their answers arrive. False: the peer gave as much before.
template <class Host>
bool Requester<Host>::TakeCredits(Aeth aeth) {
  if (aeth.value() == kNoCredits) {
    if (obeys_credits_) [[unlikely]]
      StopObeying();
    return false;
  }
  if (Distance(Msn(messages_done_), aeth.msn) < 0) return false;  // older than another one
  const uint32_t limit = receives_done_ + CreditsOf(aeth.value());
  const uint32_t given = receive_limit_ - (probing_ ? 1 : 0);  // the peer gave none for a probe
  if (obeys_credits_ && static_cast<int32_t>(limit - given) <= 0) return false;
  obeys_credits_ = true;
  receive_limit_ = limit;
  if (FreeCredits() > 0) StopHolding();
  probing_ = false;
  return true;
}

template <class Host>
void Requester<Host>::StopObeying() {
  obeys_credits_ = probing_ = false;
  StopHolding();
}

template <class Host>
DropReason Requester<Host>::HandleAnswer(Host& host, TimeNs now, const Packet& packet) {
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

// Completes requests for an acknowledgement of all PSNs before `end`. False: it covers a READ or
// atomic whose response is missing, so the response is lost (an implied NAK, 9.7.5).
template <class Host>
bool Requester<Host>::AcknowledgeBefore(Host& host, TimeNs now, Psn end) {
  bool is_complete = true;
  const Psn before = una_;
  while (una_ != end && head_ != tail_) {
    SendRecord& record = At(head_);
    if (record.failed || record.packets == 0) break;  // a local operation waits for its fence
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
    CompleteLocals(host);
  }
  if (una_ != before) Progress(host, now, StepsForward(before, una_));
  return is_complete;
}

// `packets` more PSNs were acknowledged: loss recovery starts afresh (IBTA vol 1, 9.9.2).
template <class Host>
void Requester<Host>::Progress(Host& host, TimeNs now, uint32_t packets) {
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  recovering_ = false;
  if (timer_shift_ != 0) [[unlikely]]
    ShortenTimer(now);
  if (window_ != context_.config.limits.window_packets) [[unlikely]]
    WidenWindow(packets);
  // Acknowledged beyond the next retransmission.
  if (StepsForward(una_, send_psn_) > StepsForward(una_, sent_end_)) SkipAcknowledged();
  rnr_waiting_ = false;  // the request of the RNR NAK has been acknowledged
  if (probing_) [[unlikely]] {
    // The peer has posted receives and did not say so.
    probing_ = false;
    expects_updates_ = false;
  }
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
  if (!HeadAwaits(WorkClass::kRead, packet.psn)) [[unlikely]] {
    return HandleConfirmation(host, now, packet);
  }
  SendRecord& record = At(head_);
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (!ReadResponseFits(info.position, bytes, record.received, record.wqe.length,
                        context_.mtu_shift, context_.selective)) [[unlikely]] {
    FailHead(host, CompletionStatus::kBadResponse);
    return DropReason::kPayloadLength;
  }
  const uint32_t offset = record.received << context_.mtu_shift;
  if (!PlaceResponse(host, record.wqe, offset, packet.payload)) [[unlikely]] {
    FailHead(host, CompletionStatus::kLocalProtectionError);
    return DropReason::kMemoryAccess;
  }
  ++una_;
  if (++record.received == record.packets) {
    CompleteHead(host, CompletionStatus::kSuccess);
    CompleteLocals(host);
  }
  Progress(host, now, 1);
  return DropReason::kNone;
}

// The empty READ response that answers a FLUSH or ATOMIC WRITE (IBTA vol 1, A19.4.4).
template <class Host>
DropReason Requester<Host>::HandleConfirmation(Host& host, TimeNs now, const Packet& packet) {
  if (!HeadAwaits(WorkClass::kConfirmed, packet.psn)) return DropReason::kUnexpectedOpcode;
  if (packet.info->position != Position::kOnly || !packet.payload.empty()) [[unlikely]] {
    FailHead(host, CompletionStatus::kBadResponse);
    return DropReason::kPayloadLength;
  }
  ++una_;
  CompleteHead(host, CompletionStatus::kSuccess);
  CompleteLocals(host);
  Progress(host, now, 1);
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
  CompleteLocals(host);
  Progress(host, now, 1);
  return DropReason::kNone;
}

// Whether the oldest request is of `work_class`, has not failed, and waits for `psn`.
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
  if (TakeAnswerToProbe()) {
    host.Count(QpCounter::kImpliedNaks);
    return DropReason::kOutOfSequence;
  }
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
  if (TakeAnswerToProbe()) {
    host.Count(QpCounter::kPacketSequenceErrors);
    return DropReason::kNone;
  }
  if (recovering_ || rnr_waiting_) return DropReason::kStaleAcknowledge;
  Retry(host, QpCounter::kPacketSequenceErrors);
  return DropReason::kNone;
}

// IBTA vol 1, 9.7.5.2.8 and 9.9.2.
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
  // The peer has received the request (deviations.md).
  retries_left_ = context_.attributes.retry_count;
  Rewind();
  rnr_waiting_ = true;
  recovering_ = true;
  deadline_ = now + kRnrTimerNs[timer_code];
  return DropReason::kNone;
}

template <class Host>
void Requester<Host>::HandleTimeout(Host& host, TimeNs now) {
  pacer_.HandleTimeout(now);
  if (awaits_kept_ && now >= context_.reorder->response_deadline) [[unlikely]] {
    GiveUpMissing(host, now);
    return;
  }
  if (now < deadline_ || deadline_ == kNever) return;
  if (rnr_waiting_) {
    rnr_waiting_ = false;
    deadline_ = kNever;
    return;
  }
  if (credit_waiting_) {
    StartProbe();
    return;
  }
  if (context_.adapts) LengthenTimer();
  const bool is_first = retries_left_ == context_.attributes.retry_count;
  Retry(host, QpCounter::kAckTimeouts);
  if (context_.selective && is_first && !context_.error_pending) ProbeTail();
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
  probed_tail_ = false;
  if (context_.adapts) NarrowWindow();
  Rewind();
  deadline_ = kNever;  // armed by the first retransmission
}

template <class Host>
void Requester<Host>::Rewind() {
  send_psn_ = una_;
  cursor_ = head_;
  repeating_ = false;
}

template <class Host>
void Requester<Host>::ArmTimer(TimeNs now) {
  const uint64_t timeout_ns = AckTimeoutNs(context_.attributes.timeout);
  deadline_ = timeout_ns == kNever ? kNever : now + (timeout_ns << timer_shift_);
}

// Retransmitting a window into a full queue does not drain it, so the timeout backs off. The IBTA
// allows one to four times the attribute's time (vol 1, 9.7.6.1.3). Twice is enough where rates
// adapt as well, and a peer that has gone must be noticed.
template <class Host>
void Requester<Host>::LengthenTimer() {
  constexpr uint8_t kMostShift = 1;
  if (timer_shift_ < kMostShift) ++timer_shift_;
}

// Halves the timeout if the answer arrived in the first quarter of it.
template <class Host>
void Requester<Host>::ShortenTimer(TimeNs now) {
  const uint64_t timeout_ns = AckTimeoutNs(context_.attributes.timeout);
  if (timeout_ns == kNever || deadline_ == kNever || deadline_ < now) return;
  if (deadline_ - now >= (timeout_ns << timer_shift_) / 4 * 3) --timer_shift_;
}

// Without ECN, loss is the only sign of a full queue, and go-back-N would keep the queue full: the
// packets behind the lost one are still in it. Therefore the lost packet is retransmitted alone;
// its ACK shows that the queue has drained. Then slow start and congestion avoidance as in TCP (RFC
// 5681): the window doubles up to half of its old size, then grows by one packet per window.
template <class Host>
void Requester<Host>::NarrowWindow() {
  if (window_ > 1) doubling_end_ = window_ / 2;  // 1: the retransmission was lost
  SetWindow(1);
  widening_ = 0;
}

// A narrowed window asks for at least four ACKs per window: the peer reports a loss only when later
// packets arrive.
template <class Host>
void Requester<Host>::SetWindow(uint32_t window) {
  const QpLimits& limits = context_.config.limits;
  window_ = window;
  ack_every_ = limits.ack_every_packets;
  if (window < limits.window_packets) ack_every_ = std::clamp(window / 2, 1U, ack_every_);
}

template <class Host>
void Requester<Host>::WidenWindow(uint32_t packets) {
  const uint32_t limit = context_.config.limits.window_packets;
  uint32_t window = window_;
  if (window < doubling_end_) {
    window = std::min(window + packets, doubling_end_);
  } else {
    for (widening_ += packets; widening_ >= window && window < limit; ++window) {
      widening_ -= window;
    }
  }
  SetWindow(window);
}

// ---- Completion ----

template <class Host>
void Requester<Host>::CompleteHead(Host& host, CompletionStatus status) {
  const SendRecord& record = At(head_++);
  messages_done_ += record.packets != 0;
  receives_done_ += ReceivesOf(record.wqe.opcode);
  Complete(host, record, status);
}

template <class Host>
void Requester<Host>::Complete(Host& host, const SendRecord& record, CompletionStatus status) {
  const WorkInfo& info = InfoOf(record.wqe.opcode);
  if (IsAnswered(info.work_class) && record.started) {
    --rd_atomic_outstanding_;
    durable_outstanding_ -= IsDurableFlush(record.wqe);
  }
  Completion completion{};
  completion.wr_id = record.wqe.wr_id;
  completion.slot = record.wqe.slot;
  if (info.work_class == WorkClass::kRead) completion.byte_length = record.wqe.length;
  if (info.work_class == WorkClass::kAtomic) completion.byte_length = 8;
  completion.status = status;
  completion.opcode = info.completion;
  completion.signaled =
      record.wqe.signaled || context_.config.sq_sig_all || status != CompletionStatus::kSuccess;
  host.CompleteSend(completion);
}

// A request that fails locally completes after all older requests, which are not affected; no later
// request is sent.
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
  StopHolding();
  deadline_ = kNever;
  rnr_waiting_ = false;
  (context_.HasSendErrorState() ? context_.send_error_pending : context_.error_pending) = true;
}

// A fatal NAK: older requests complete, its own request fails. An older READ or atomic without its
// response completes as flushed: the peer will not send it any more.
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
    const bool unanswered = IsAnswered(InfoOf(record.wqe.opcode).work_class);
    CompleteHead(host,
                 unanswered ? CompletionStatus::kWorkRequestFlushed : CompletionStatus::kSuccess);
  }
}

template <class Host>
void Requester<Host>::HandleTransmitFault(Host& host, Psn psn, CompletionStatus status) {
  for (uint32_t i = head_; i != tail_; ++i) {
    const SendRecord& record = At(i);
    if (!InWindow(psn, record.first_psn, record.packets)) continue;
    // The packet was not sent. Later packets must not be sent either: the peer would see a gap.
    cursor_ = i;
    send_psn_ = psn;
    repeating_ = false;
    if (!context_.IsReliable()) una_ = sent_end_ = psn;
    FailRecord(host, i, status);
    return;
  }
}

// Responses arrive in order, so the request in progress is the oldest.
template <class Host>
void Requester<Host>::HandlePlaceFault(Host& host) {
  if (head_ == tail_) return;
  const SendRecord& record = At(head_);
  if (!record.started || !IsAnswered(InfoOf(record.wqe.opcode).work_class)) return;
  FailHead(host, CompletionStatus::kLocalProtectionError);
}

template <class Host>
bool Requester<Host>::Flush(Host& host, uint32_t budget) {
  StopHolding();
  ForgetKept();
  deadline_ = kNever;
  rnr_waiting_ = false;
  for (; budget != 0; --budget) {
    if (head_ != tail_) {
      host.Count(QpCounter::kReqCqeFlushErrors);
      CompleteHead(host, CompletionStatus::kWorkRequestFlushed);
      continue;
    }
    // It was not in flight and needs no record of the ring.
    SendRecord record{};
    CompletionStatus ignored{};
    if (host.FetchSend(record.wqe, ignored) == FetchResult::kEmpty) break;
    assert(static_cast<size_t>(record.wqe.opcode) < kWorkOpcodeCount);
    host.Count(QpCounter::kReqCqeFlushErrors);
    Complete(host, record, CompletionStatus::kWorkRequestFlushed);
  }
  cursor_ = head_;
  una_ = sent_end_ = next_psn_ = send_psn_;  // for a send queue that returns from SQE to RTS
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
  out.window = window_;
  out.retries_left = retries_left_;
  out.rnr_retries_left = rnr_retries_left_;
  out.rnr_waiting = rnr_waiting_;
  out.recovering = recovering_;
  out.credit_waiting = held_back_;
  out.obeys_credits = obeys_credits_;
  out.credits = obeys_credits_ ? FreeCredits() : 0;
  out.deadline = deadline_;
}

}  // namespace roci::roce
