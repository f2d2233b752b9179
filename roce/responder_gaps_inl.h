// Requests that do not arrive in order, at a responder: gaps, early packets, asking for what is
// missing (IBTA vol 1, 9.7.5.2, and QpLimits::reorder_wait_ns). Included by qp_inl.h only.
#pragma once

#include <algorithm>
#include <utility>

#include "roce/responder.h"

namespace roci::roce {

// IBTA vol 1, 9.7.5.2: one NAK per gap. Until the missing packet arrives, later packets are dropped
// without an answer, or kept.
template <class Host>
PacketEffects Responder<Host>::HandleGap(Host& host, TimeNs now, const Packet& packet) {
  host.Count(QpCounter::kOutOfSequence);
  if (context_.reorder != nullptr) return HandleEarly(host, now, packet);
  AskForExpected();
  return {DropReason::kOutOfSequence};
}

template <class Host>
void Responder<Host>::AskForExpected() {
  if (gap_reported_) return;
  SetNak(expected_, Aeth::Nak(msn_, NakCode::kPsnSequenceError).syndrome);
  gap_reported_ = true;
}

// Whether the last NAK was an RNR NAK.
template <class Host>
bool Responder<Host>::IsNotReady() const {
  return Aeth{nak_syndrome_, msn_}.kind() == AethKind::kRnrNak;
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
    // Counted from the start of the gap, so that later packets do not extend it.
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
  const uint64_t answer_ns = state.requester.AnswerNs(context_.config.limits.reorder_wait_ns);
  state.requests.NoteComing(now, now + answer_ns);
}

template <class Host>
void Responder<Host>::ForgetKept() {
  awaits_kept_ = acks_kept_ = all_kept_ = false;
  if (context_.reorder == nullptr) return;
  context_.reorder->requests.Clear();
  context_.reorder->request_deadline = kNever;
  if (nak_is_selective_) nak_pending_ = false;  // it would ask for nothing
}

}  // namespace roci::roce
