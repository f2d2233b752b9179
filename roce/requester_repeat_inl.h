// Selective repeat of a requester (QpLimits::selective_repeat): it sends again what the peer asks
// for and nothing else. Included by qp_inl.h only.
#pragma once

#include <algorithm>
#include <optional>

#include "roce/requester.h"

namespace roci::roce {

// Whether a selective NAK is valid and was agreed on.
template <class Host>
bool Requester<Host>::MayBeAsked(const Packet& packet) const {
  const Aeth aeth = packet.ext.aeth;
  return context_.selective && aeth.kind() == AethKind::kNak &&
         aeth.value() == static_cast<uint8_t>(NakCode::kPsnSequenceError);
}

// It acknowledges everything before its PSN, as every NAK (IBTA vol 1, 9.7.5.2), and a response
// before it that has not come is missing. It uses up no retry and leaves the timer alone, which so
// bounds how long the peer may ask without progress.
template <class Host>
DropReason Requester<Host>::HandleSelectiveNak(Host& host, TimeNs now, const Packet& packet) {
  if (!MayBeAsked(packet)) return DropReason::kUnexpectedOpcode;
  Psn response;
  if (FindMissing(response) && Distance(response, packet.psn) > 0) {
    AcknowledgeBefore(host, now, response);
    context_.reorder->responses.Expect(response, packet.psn, now);
    awaits_kept_ = true;
    SetReorderDeadline(now, response);
  } else {
    AcknowledgeBefore(host, now, packet.psn);
  }
  if (context_.error_pending) return DropReason::kNone;
  if (rnr_waiting_ || GoesBack()) return DropReason::kStaleAcknowledge;
  host.Count(QpCounter::kSelectiveNaksReceived);
  if (context_.adapts) NarrowOnce();
  Repeat(packet.psn, packet.ext.missing);
  return DropReason::kNone;
}

// Before PSNs are added to the sets of what to send first, and SeekRepeat.
template <class Host>
void Requester<Host>::StartRepeating() {
  ReorderState& state = *context_.reorder;
  if (repeating_) {
    state.repeats.DropBefore(send_psn_);
    state.rereads.DropBefore(send_psn_);
  } else {
    state.repeats.Clear();
    state.rereads.Clear();
    state.resume = send_psn_;
  }
  repeating_ = true;
  send_psn_ = una_;
}

// Sends the request packets `missing`, which counts from `first`, before anything else.
template <class Host>
void Requester<Host>::Repeat(Psn first, const MissingEth& missing) {
  StartRepeating();
  context_.reorder->repeats.Add(first, missing);
  SeekRepeat();
}

// Asks for the responses `missing`, which counts from the oldest missing response, before anything
// else.
template <class Host>
void Requester<Host>::Reread(const MissingEth& missing) {
  StartRepeating();
  context_.reorder->rereads.Add(context_.reorder->responses.due(), missing);
  SeekRepeat();
}

// Those of `missing` that belong to requests with responses of their own.
template <class Host>
MissingEth Requester<Host>::OnlyAnswered(const MissingEth& missing) const {
  const Psn first = context_.reorder->responses.due();
  MissingEth out;
  uint32_t i = 0;
  for (uint32_t at = head_; at != tail_ && At(at).started; ++at) {
    const SendRecord& record = At(at);
    const int32_t end = Distance(first, record.first_psn + record.packets);
    const bool is_answered = IsAnswered(InfoOf(record.wqe.opcode).work_class);
    for (; static_cast<int32_t>(i) < end && i < MissingEth::kPsns; ++i) {
      if (is_answered && missing.Has(i)) out.Add(i);
    }
  }
  return out;
}

// How many responses from send_psn_ on are asked for, if it is the first.
template <class Host>
uint32_t Requester<Host>::PartToReread() const {
  const ReorderState& state = *context_.reorder;
  constexpr uint32_t kAll = UINT32_MAX;
  if (state.repeats.Has(send_psn_)) return kAll;  // the peer lacks the request
  uint32_t part = 0;
  while (state.rereads.Has(send_psn_ + part)) ++part;
  return part == 0 ? kAll : part;
}

// Requests overdue responses again. If the peer did not answer kMostAsks requests for the oldest
// one, or never answers such requests: go-back-N.
template <class Host>
void Requester<Host>::AskForResponses(Host& host, TimeNs now) {
  ReorderState& state = *context_.reorder;
  const uint64_t wait_ns = context_.config.limits.reorder_wait_ns;
  const ReorderWindow::Gap* missing = state.responses.Missing();
  if (rnr_waiting_ || missing == nullptr || now >= missing->since + wait_ns + kLongestKeptNs) {
    return ForgetKept();
  }
  // The peer cannot answer what was not sent yet.
  if (repeating_ && state.rereads.Next(send_psn_).has_value()) {
    state.response_deadline = std::min(now + wait_ns, missing->since + wait_ns + kLongestKeptNs);
    return;
  }
  if (missing->asks >= kMostAsks) state.responder.NoteSilence();
  const bool is_ignored = missing->asks >= kMostAsks || state.responder.is_deaf();
  state.responses.Ask(now, wait_ns, state.responder.AnswerNs(wait_ns));
  const MissingEth wanted = OnlyAnswered(state.responses.TakeWanted());
  if (is_ignored && !recovering_) {
    Retry(host, QpCounter::kImpliedNaks);
  } else if (!GoesBack() && wanted != MissingEth()) {
    host.Count(QpCounter::kImpliedNaks);
    if (context_.adapts) NarrowOnce();
    Reread(wanted);
  }
  SetSelectiveDeadline(now);
}

// When to ask for responses, or to give up those that are kept.
template <class Host>
void Requester<Host>::SetSelectiveDeadline(TimeNs now) {
  ReorderState& state = *context_.reorder;
  const uint64_t wait_ns = context_.config.limits.reorder_wait_ns;
  const ReorderWindow::Gap* missing = state.responses.Missing();
  if (!awaits_kept_) {
    state.response_deadline = kNever;
  } else if (missing == nullptr) {
    state.response_deadline = now + kLongestKeptNs;
  } else {
    state.response_deadline =
        std::min(state.responses.NextAsk(wait_ns), missing->since + wait_ns + kLongestKeptNs);
  }
}

// The first timeout without progress: either the last ACK is lost, or the last packets are.
// Retransmitting the last packet distinguishes the two: the peer acknowledges it, or requests the
// packets that are missing before it. Otherwise the next timeout starts go-back-N as usual. Not in
// a window that a loss has narrowed, nor for a request without a credit, whose packets are sent one
// by one.
template <class Host>
void Requester<Host>::ProbeTail() {
  const uint32_t last = StepsForward(una_, sent_end_ - 1);
  if (last == 0 || last >= MissingEth::kPsns || last >= window_ || probing_) return;
  MoveTo(sent_end_ - 1);
  const bool is_sent = cursor_ != tail_ && At(cursor_).started && !At(cursor_).failed;
  if (!is_sent || InfoOf(At(cursor_).wqe.opcode).work_class != WorkClass::kSegmented) {
    return Rewind();
  }
  MissingEth probe;
  probe.Add(last);
  send_psn_ = sent_end_;
  Repeat(una_, probe);
  probed_tail_ = true;
}

// A plain or an implied NAK has come. True: it answers the probe, and the requester goes back N.
// The timeout before the probe has used up a retry for that.
template <class Host>
bool Requester<Host>::TakeAnswerToProbe() {
  if (!probed_tail_ || !recovering_ || rnr_waiting_) [[likely]]
    return false;
  probed_tail_ = false;
  Rewind();
  deadline_ = kNever;
  return true;
}

// Moves on to the next packet that the peer asks for, or to where sending goes on.
template <class Host>
void Requester<Host>::SeekRepeat() {
  const ReorderState& state = *context_.reorder;
  std::optional<Psn> next = state.repeats.Next(send_psn_);
  const std::optional<Psn> reread = state.rereads.Next(send_psn_);
  if (!next || (reread && Distance(*reread, *next) > 0)) next = reread;
  if (next && StepsForward(una_, *next) < StepsForward(una_, sent_end_)) return MoveTo(*next);
  repeating_ = false;
  MoveTo(Distance(una_, state.resume) < 0 ? una_ : state.resume);
}

// Sets send_psn_, and cursor_ to the record that has it. A failed record stops all sending.
template <class Host>
void Requester<Host>::MoveTo(Psn psn) {
  send_psn_ = psn;
  const uint32_t ahead = StepsForward(una_, psn);
  for (cursor_ = head_; cursor_ != tail_; ++cursor_) {
    const SendRecord& record = At(cursor_);
    const bool is_sent = record.packets == 0
                             ? record.started
                             : StepsForward(una_, record.first_psn + record.packets) <= ahead;
    if (record.failed || !is_sent) return;
  }
}

// The peer has acknowledged more than was sent again.
template <class Host>
void Requester<Host>::SkipAcknowledged() {
  if (!repeating_) return Rewind();
  send_psn_ = una_;
  SeekRepeat();
}

// Losses of one window halve it once, as in TCP (RFC 5681). What is repeated adds nothing to the
// queue: it replaces what was lost.
template <class Host>
void Requester<Host>::NarrowOnce() {
  ReorderState& state = *context_.reorder;
  // The mark means something within the window only: PSNs wrap.
  const uint32_t until = StepsForward(una_, state.narrowed_until);
  if (until != 0 && until <= StepsForward(una_, sent_end_)) return;
  state.narrowed_until = sent_end_;
  doubling_end_ = std::max(window_ / 2, 2U);
  SetWindow(doubling_end_);
  widening_ = 0;
}

}  // namespace roci::roce
