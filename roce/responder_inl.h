// Definitions of Responder: packet sequence, gaps and duplicates; dispatch, flush, debug. Included
// by qp_inl.h only.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "roce/responder.h"

namespace roci::roce {

template <class Host>
Responder<Host>::Responder(QpContext& context, std::span<ResponderResource> resources)
    : context_(context),
      resources_(resources.data()),
      mask_(static_cast<uint32_t>(resources.size()) - 1) {
  assert(std::has_single_bit(resources.size()));
}

template <class Host>
void Responder<Host>::Reset() {
  oldest_ = emit_ = end_ = 0;
  expected_ = Psn();
  msn_ = Msn();
  message_ = MessageState();
  has_receive_ = false;
  gap_reported_ = false;
  discarding_ = false;
  srq_number_ = kNoSrq;
  awaits_receives_ = false;
  ForgetKept();
  ForgetPeer();
  DropAnswers();
}

// What selective repeat has learned of the peer.
template <class Host>
void Responder<Host>::ForgetPeer() {
  if (context_.reorder == nullptr) return;
  context_.reorder->requester = AskedPeer();
}

template <class Host>
void Responder<Host>::Start(Psn rq_psn) {
  Reset();
  expected_ = rq_psn;
  ack_asked_psn_ = rq_psn - 1;
}

template <class Host>
void Responder<Host>::DropAnswers() {
  emit_ = end_;
  nak_pending_ = false;
  ack_pending_ = false;
  durable_started_ = false;
  waits_for_durable_ = false;
  replaying_ = false;
}

template <class Host>
PacketEffects Responder<Host>::HandleRequest(Host& host, TimeNs now, const Packet& packet) {
  switch (context_.config.type) {
    case QpType::kUc:
      return {HandleUnreliable(host, packet)};
    case QpType::kUd:
      return {HandleDatagram(host, packet)};
    case QpType::kXrcRecv:
      return HandleXrc(host, now, packet);
      [[likely]] default : return HandleReliable(host, now, packet);
  }
}

// Extended reliable connection (IBTA vol 1, A14): every request names a shared receive queue, whose
// protection domain applies; all packets of a message must name the same one.
template <class Host>
PacketEffects Responder<Host>::HandleXrc(Host& host, TimeNs now, const Packet& packet) {
  if (packet.psn == expected_) [[likely]] {
    const uint32_t number = packet.ext.xrc.srq_number;
    const bool continues = message_.kind != InMessage::kNone;
    if ((continues && number != srq_number_) || !host.SelectReceiveQueue(number)) [[unlikely]] {
      return {Fault(host, RequestFault::kReceiveQueue)};
    }
    srq_number_ = number;
  }
  return HandleReliable(host, now, packet);
}

template <class Host>
void Responder<Host>::ForgetReceiveQueue(uint32_t number) {
  if (srq_number_ != number) return;
  has_receive_ = false;
  srq_number_ = kNoSrq;
}

template <class Host>
PacketEffects Responder<Host>::HandleReliable(Host& host, TimeNs now, const Packet& packet) {
  if (packet.psn != expected_) [[unlikely]] {
    if (ClassifyPsn(expected_, packet.psn) == PsnClass::kGap) return HandleGap(host, now, packet);
    return {HandleDuplicate(host, packet)};
  }
  RequestFault fault = CheckOpcodeSequence(message_.kind, *packet.info);
  if (fault == RequestFault::kNone) [[likely]] {
    fault = CheckOpcodeEnabled(context_.attributes.access_flags, *packet.info);
  }
  if (emit_ != end_ && fault == RequestFault::kNone && MustFollowFlush(*packet.info)) [[unlikely]] {
    ForgetKept();  // the peer sends this packet and all later ones again
    AskForExpected();
    return {DropReason::kBehindFlush};
  }
  if (fault == RequestFault::kNone) [[likely]] {
    fault = Execute(host, packet);
  }
  if (fault != RequestFault::kNone) [[unlikely]] {
    if (fault == RequestFault::kNotYet) return {.offer_again = true};
    return {Fault(host, fault)};
  }
  if (gap_reported_ || awaits_kept_) [[unlikely]] {
    return {.early = LeaveGap(now)};
  }
  return {};
}

// The missing packet was executed. A pending RNR NAK is cancelled; a pending sequence NAK stays if
// packets after the gap were dropped, since they must be retransmitted. After a retransmission, an
// ACK is due when the kept packets are executed, so that the peer sends no more of them again.
template <class Host>
EarlyAction Responder<Host>::LeaveGap(TimeNs now) {
  const bool was_reported = std::exchange(gap_reported_, false);
  if (nak_pending_ && (IsNotReady() || all_kept_)) nak_pending_ = false;
  all_kept_ = false;
  if (!awaits_kept_) return EarlyAction::kNone;
  acks_kept_ |= was_reported;
  return ContinueKept(now);
}

template <class Host>
EarlyAction Responder<Host>::ContinueKept(TimeNs now) {
  ReorderWindow& window = context_.reorder->requests;
  if (context_.selective) NoteRepeated(now);
  window.Advance(expected_);
  awaits_kept_ = !window.is_empty();
  SetReorderDeadline(now);
  if (nak_pending_ && nak_is_selective_) {
    nak_psn_ = expected_;
    nak_pending_ = window.HasWanted();
  }
  if (window.HasArrived(expected_)) return EarlyAction::kOfferKept;
  ack_pending_ |= std::exchange(acks_kept_, false);
  return EarlyAction::kNone;
}

// IBTA vol 1, 9.7.5.2: one NAK per gap. Until the missing packet arrives, later packets are dropped
// without an answer, or kept.
template <class Host>
PacketEffects Responder<Host>::HandleGap(Host& host, TimeNs now, const Packet& packet) {
  host.Count(QpCounter::kOutOfSequence);
  if (context_.reorder != nullptr) return HandleEarly(host, now, packet);
  AskForExpected();
  return {DropReason::kOutOfSequence};
}

// After an RNR NAK the peer sends everything again, so nothing is kept.
template <class Host>
PacketEffects Responder<Host>::HandleEarly(Host& host, TimeNs now, const Packet& packet) {
  if (!(gap_reported_ && IsNotReady()) && host.HasRoomToKeep()) {
    const bool is_read = packet.info->operation == Operation::kReadRequest;
    const uint32_t packets =
        is_read ? PacketsOf(packet.ext.reth.length, context_.mtu_shift) : uint32_t{1};
    switch (context_.reorder->requests.Note(expected_, packet.psn, packets, now)) {
      case ReorderWindow::Arrival::kNew:
        host.Count(QpCounter::kKeptRequests);
        awaits_kept_ = true;
        if (context_.reorder->requests.Missing() != nullptr) SetReorderDeadline(now);
        return {.early = EarlyAction::kKeep};
      case ReorderWindow::Arrival::kDuplicate:
        return {DropReason::kKeptDuplicate};
      case ReorderWindow::Arrival::kNoRoom:
        break;
    }
  }
  all_kept_ = false;
  AskForExpected();
  SetReorderDeadline(now);
  return {DropReason::kOutOfSequence};
}

template <class Host>
void Responder<Host>::SetReorderDeadline(TimeNs now) {
  ReorderState& state = *context_.reorder;
  const ReorderWindow::Gap* missing = state.requests.Missing();
  if (!awaits_kept_) {
    state.request_deadline = kNever;
  } else if (missing == nullptr) {
    // The next packet was offered and is not handled: it waits for copies, or was dropped.
    state.request_deadline = now + kLongestKeptNs;
  } else if (AsksSelectively()) {
    const uint64_t wait_ns = context_.config.limits.reorder_wait_ns;
    state.request_deadline =
        std::min(state.requests.NextAsk(wait_ns), missing->since + wait_ns + kLongestKeptNs);
  } else {
    // From the age of the gap: packets behind it must not prolong the wait.
    state.request_deadline = missing->since + context_.config.limits.reorder_wait_ns +
                             (gap_reported_ ? kLongestKeptNs : 0);
  }
}

template <class Host>
void Responder<Host>::HandleTimeout(TimeNs now) {
  if (now < context_.reorder->request_deadline) return;
  if (AsksSelectively() && context_.reorder->requests.Missing() != nullptr) {
    return AskForMissing(now);
  }
  if (gap_reported_ || context_.reorder->requests.Missing() == nullptr) return ForgetKept();
  all_kept_ = true;
  AskForExpected();
  SetReorderDeadline(now);
}

template <class Host>
bool Responder<Host>::AsksSelectively() const {
  return context_.selective && !context_.reorder->requester.is_deaf();
}

// Selective repeat: asks for every gap whose time has come. A peer that does not repeat the oldest
// missing packet, or cannot, is told to go back as well.
template <class Host>
void Responder<Host>::AskForMissing(TimeNs now) {
  ReorderState& state = *context_.reorder;
  const uint64_t wait_ns = context_.config.limits.reorder_wait_ns;
  const ReorderWindow::Gap missing = *state.requests.Missing();
  if (now >= missing.since + wait_ns + kLongestKeptNs) return ForgetKept();
  if (nak_pending_) {  // the peer cannot answer what was not sent yet
    state.request_deadline = std::min(now + wait_ns, missing.since + wait_ns + kLongestKeptNs);
    return;
  }
  state.requests.Ask(now, wait_ns, state.requester.AnswerNs(wait_ns));
  if (missing.asks >= kMostAsks && !gap_reported_) {
    state.requester.NoteSilence();
    all_kept_ = true;
    AskForExpected();
  } else {
    SetNak(expected_, Aeth::Nak(msn_, NakCode::kPsnSequenceError).syndrome);
    nak_is_selective_ = true;
  }
  SetReorderDeadline(now);
}

// The packet before those that are kept was executed. If the peer was asked for it, an ACK is due
// when the kept ones are executed, too, and the time shows when to ask again in future.
template <class Host>
void Responder<Host>::NoteRepeated(TimeNs now) {
  ReorderState& state = *context_.reorder;
  const ReorderWindow::Gap* missing = state.requests.Missing();
  if (missing == nullptr || missing->asks == 0) return;
  acks_kept_ = true;
  if (!missing->is_coming) state.requester.NoteAnswer(now - missing->asked_at, missing->asks);
  state.requests.NoteComing(now + state.requester.AnswerNs(context_.config.limits.reorder_wait_ns));
}

template <class Host>
void Responder<Host>::ForgetKept() {
  awaits_kept_ = acks_kept_ = all_kept_ = false;
  if (context_.reorder == nullptr) return;
  context_.reorder->requests.Clear();
  context_.reorder->request_deadline = kNever;
  if (nak_is_selective_) nak_pending_ = false;  // it would ask for nothing
}

// Whether the last NAK was an RNR NAK.
template <class Host>
bool Responder<Host>::IsNotReady() const {
  return Aeth{nak_syndrome_, msn_}.kind() == AethKind::kRnrNak;
}

template <class Host>
void Responder<Host>::AskForExpected() {
  if (gap_reported_) return;
  SetNak(expected_, Aeth::Nak(msn_, NakCode::kPsnSequenceError).syndrome);
  gap_reported_ = true;
}

// IBTA vol 1, A19: an atomic or ATOMIC WRITE after a FLUSH for persistence must not be visible
// before the flushed bytes are durable. It is dropped; a sequence NAK after the FLUSH's answer
// requests it again.
template <class Host>
bool Responder<Host>::MustFollowFlush(const OpcodeInfo& info) const {
  if (info.operation != Operation::kAtomicWrite && info.operation != Operation::kCompareSwap &&
      info.operation != Operation::kFetchAdd) {
    return false;
  }
  for (uint32_t i = emit_; i != end_; ++i) {
    if (At(i).kind == AnswerKind::kDurable) return true;
  }
  return false;
}

// IBTA vol 1, 9.7.4.1 and 9.7.5: a duplicate SEND or WRITE is acknowledged and not executed; a READ
// is executed again; atomics, FLUSH and ATOMIC WRITE repeat their answer.
template <class Host>
DropReason Responder<Host>::HandleDuplicate(Host& host, const Packet& packet) {
  host.Count(QpCounter::kDuplicateRequest);
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      ack_pending_ = true;
      ack_asked_psn_ = packet.psn;
      return DropReason::kNone;
    case Operation::kReadRequest:
      return ReplayRead(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ReplayAtomic(packet);
    case Operation::kFlush:
    case Operation::kAtomicWrite:
      return ReplayConfirmation(packet);
    default:
      return DropReason::kStaleDuplicate;
  }
}

template <class Host>
bool Responder<Host>::FindResource(Psn psn, uint32_t& index) const {
  for (uint32_t i = end_; i != oldest_; --i) {
    const ResponderResource& resource = At(i - 1);
    if (InWindow(psn, resource.first_psn, resource.packets)) {
      index = i - 1;
      return true;
    }
  }
  return false;
}

// A retried READ may start anywhere in the original READ. It must name the same memory, since only
// that was checked.
template <class Host>
DropReason Responder<Host>::ReplayRead(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index)) return DropReason::kStaleDuplicate;
  ResponderResource& resource = At(index);
  const uint32_t skip = StepsForward(resource.first_psn, packet.psn);
  const uint32_t offset = skip << context_.mtu_shift;
  const Reth& reth = packet.ext.reth;
  if (resource.kind != AnswerKind::kRead || reth.va != resource.va + offset ||
      reth.rkey != resource.rkey) {
    return DropReason::kStaleDuplicate;
  }
  if (context_.selective && MustReplay(resource, packet, skip)) {
    return AddReplay(index, skip, skip + PacketsOf(reth.length, context_.mtu_shift));
  }
  if (reth.length != resource.length - offset) return DropReason::kStaleDuplicate;
  Rearm(resource, index, skip);
  return DropReason::kNone;
}

// Selective repeat: whether a retried READ asks for a part that ends before the READ does. The rest
// of a READ replaces what is still to be sent of it: when the peer has it, the READ is over.
template <class Host>
bool Responder<Host>::MustReplay(const ResponderResource& resource, const Packet& packet,
                                 uint32_t skip) const {
  const uint32_t left = resource.length - (skip << context_.mtu_shift);
  const uint32_t length = packet.ext.reth.length;
  return length != 0 && length < left && (length & (context_.mtu_bytes() - 1)) == 0;
}

// Without room the part is dropped: the peer asks for it again.
template <class Host>
DropReason Responder<Host>::AddReplay(uint32_t index, uint32_t start, uint32_t end) {
  ReorderState& state = *context_.reorder;
  if (!replaying_) state.replay_count = 0;
  if (state.replay_count == kMostRereads) return DropReason::kStaleDuplicate;
  state.replays[state.replay_count++] = {index, start, start, end};
  replaying_ = true;
  return DropReason::kNone;
}

template <class Host>
DropReason Responder<Host>::ReplayAtomic(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index) || At(index).kind != AnswerKind::kAtomic) {
    return DropReason::kStaleDuplicate;
  }
  Rearm(At(index), index, 0);
  return DropReason::kNone;
}

template <class Host>
DropReason Responder<Host>::ReplayConfirmation(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index) ||
      (At(index).kind != AnswerKind::kConfirmation && At(index).kind != AnswerKind::kDurable)) {
    return DropReason::kStaleDuplicate;
  }
  Rearm(At(index), index, 0);
  return DropReason::kNone;
}

template <class Host>
void Responder<Host>::Rearm(ResponderResource& resource, uint32_t index, uint32_t next) {
  resource.next = next;
  resource.start = next;
  resource.pending = true;
  if (static_cast<int32_t>(index - emit_) >= 0) return;
  emit_ = index;
  waits_for_durable_ = false;
}

template <class Host>
RequestFault Responder<Host>::Execute(Host& host, const Packet& packet) {
  RequestFault fault = RequestFault::kUnsupportedOpcode;
  switch (packet.info->operation) {
    case Operation::kSend:
      fault = ExecuteSend(host, packet);
      break;
    case Operation::kWrite:
      fault = ExecuteWrite(host, packet);
      break;
    case Operation::kReadRequest:
      return ExecuteRead(host, packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ExecuteAtomic(host, packet);
    case Operation::kAtomicWrite:
      return ExecuteAtomicWrite(host, packet);
    case Operation::kFlush:
      return ExecuteFlush(host, packet);
    default:
      return fault;
  }
  if (fault == RequestFault::kNone) [[likely]] {
    ++expected_;
    ack_pending_ |= packet.ack_request;
    ack_asked_psn_ = packet.psn;
  }
  return fault;
}

template <class Host>
bool Responder<Host>::Flush(Host& host, uint32_t budget) {
  if (has_receive_) {
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  if (context_.config.uses_srq) return true;
  for (; budget != 0; --budget) {
    CompletionStatus ignored{};
    if (host.FetchRecv(receive_, ignored, nullptr) == FetchResult::kEmpty) return true;
    has_receive_ = true;
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  return false;
}

template <class Host>
void Responder<Host>::Describe(ResponderDebug& out) const {
  out.expected_psn = expected_;
  out.msn = msn_;
  out.resources_pending = 0;
  for (uint32_t i = emit_; i != end_; ++i) out.resources_pending += At(i).pending ? 1u : 0u;
  out.ack_pending = ack_pending_;
  out.nak_pending = nak_pending_;
  out.gap_reported = gap_reported_;
  out.in_message = message_.kind != InMessage::kNone;
  out.waits_for_durable = waits_for_durable_;
  out.awaits_receives = awaits_receives_;
}

}  // namespace roci::roce
