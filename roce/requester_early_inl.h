// Early responses of a requester (QpLimits::reorder_wait_ns): those that arrive while one with a
// lower PSN is missing. Included by qp_inl.h only.
#pragma once

#include <utility>

#include "roce/requester.h"

namespace roci::roce {

// The oldest response that has not come, of a READ, atomic, FLUSH or ATOMIC WRITE. False: none is
// missing.
template <class Host>
bool Requester<Host>::FindMissing(Psn& psn) const {
  if (rd_atomic_outstanding_ == 0) return false;
  for (uint32_t i = head_; i != tail_; ++i) {
    const SendRecord& record = At(i);
    if (!record.started) return false;
    if (!IsAnswered(InfoOf(record.wqe.opcode).work_class)) continue;
    psn = i == head_ ? una_ : record.first_psn;
    return true;
  }
  return false;
}

template <class Host>
bool Requester<Host>::IsDue(Psn end) const {
  Psn missing;
  return !FindMissing(missing) || Distance(missing, end) <= 0;
}

// True: `packet` is early, and `effects` says what becomes of it. False: it is handled
// now; it may then imply a NAK.
template <class Host>
bool Requester<Host>::MustKeep(Host& host, TimeNs now, const Packet& packet,
                               PacketEffects& effects) {
  const Psn end = ResponseEnd(packet);
  Psn missing;
  if (!FindMissing(missing) || Distance(missing, end) <= 0 || IsFatal(packet) ||
      !host.HasRoomToKeep()) {
    return false;
  }
  AcknowledgeBefore(host, now, missing);  // it shows that what comes before was executed
  ReorderState& state = *context_.reorder;
  if (packet.info->operation == Operation::kAcknowledge) {
    const bool is_newest = !state.acknowledged_ahead || Distance(state.acknowledged_end, end) > 0;
    if (!is_newest && packet.ext.aeth.kind() == AethKind::kAck) {
      effects.reason = DropReason::kKeptDuplicate;
      return true;
    }
    if (is_newest) state.acknowledged_end = end;
    state.acknowledged_ahead = true;
    if (context_.selective) state.responses.Expect(missing, end, now);
  } else {
    switch (state.responses.Note(missing, packet.psn, 1, now)) {
      case ReorderWindow::Arrival::kNew:
        break;
      case ReorderWindow::Arrival::kDuplicate:
        effects.reason = DropReason::kKeptDuplicate;
        return true;
      case ReorderWindow::Arrival::kNoRoom:
        return false;
    }
  }
  host.Count(QpCounter::kKeptResponses);
  if (!std::exchange(awaits_kept_, true) || state.missing_response != missing ||
      (context_.selective && state.responses.Missing() != nullptr)) {
    SetReorderDeadline(now, missing);
  }
  effects.early = EarlyAction::kKeep;
  return true;
}

// A packet was handled while others are kept.
template <class Host>
EarlyAction Requester<Host>::ContinueKept(TimeNs now) {
  ReorderState& state = *context_.reorder;
  Psn missing;
  if (!FindMissing(missing)) missing = sent_end_;
  if (missing == state.missing_response) return EarlyAction::kNone;
  if (const ReorderWindow::Gap* gap = state.responses.Missing(); gap != nullptr && gap->asks != 0) {
    if (!gap->is_coming) state.responder.NoteAnswer(now - gap->asked_at, gap->asks);
    const uint64_t answer_ns = state.responder.AnswerNs(context_.config.limits.reorder_wait_ns);
    state.responses.NoteComing(now, now + answer_ns);
  }
  state.responses.Advance(missing);
  state.acknowledged_ahead &= Distance(missing, state.acknowledged_end) > 0;
  awaits_kept_ = !state.responses.is_empty() || state.acknowledged_ahead;
  SetReorderDeadline(now, missing);
  return EarlyAction::kOfferKept;
}

// The missing response is waited for from when it is the oldest one.
template <class Host>
void Requester<Host>::SetReorderDeadline(TimeNs now, Psn missing) {
  ReorderState& state = *context_.reorder;
  state.missing_response = missing;
  if (context_.selective) return SetSelectiveDeadline(now);
  const uint64_t wait_ns =
      recovering_ ? kLongestKeptNs : uint64_t{context_.config.limits.reorder_wait_ns};
  state.response_deadline = awaits_kept_ ? now + wait_ns : kNever;
}

// The missing response counts as lost.
template <class Host>
void Requester<Host>::GiveUpMissing(Host& host, TimeNs now) {
  if (context_.selective) return AskForResponses(host, now);
  if (recovering_ || rnr_waiting_) return ForgetKept();
  Retry(host, QpCounter::kImpliedNaks);
  SetReorderDeadline(now, context_.reorder->missing_response);
}

template <class Host>
void Requester<Host>::ForgetKept() {
  awaits_kept_ = false;
  if (context_.reorder == nullptr) return;
  ReorderState& state = *context_.reorder;
  state.responses.Clear();
  state.response_deadline = kNever;
  state.acknowledged_ahead = false;
}

}  // namespace roci::roce
