#include "tools/judge/retransmissions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/judge/psn_gaps.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::Operation;
using roce::Psn;

constexpr uint32_t kMostRetries = 7;  // retry_cnt has three bits
constexpr int64_t kNakObeyedNs = 500'000'000;

// Whether a READ asks for a part of an earlier one, of whole packets, that ends before it does
// (selective repeat).
bool IsPart(const Flow& flow, const SentRequest& sent, const SentRequest& again) {
  const uint32_t mtu = MtuOf(flow, sent);
  const auto done = static_cast<uint32_t>(Distance(sent.psn, again.psn)) * uint64_t{mtu};
  return roce::InfoOf(again.opcode).operation == Operation::kReadRequest &&
         again.opcode == sent.opcode && mtu != 0 && again.length != 0 && again.length % mtu == 0 &&
         again.va == sent.va + done && again.length + done < sent.length;
}

void CompareRepeat(const SeenFrame& frame, Flow& flow, const SentRequest& sent, Reporter& out) {
  SentRequest again = Describe(frame, flow);
  bool is_same = again.opcode == sent.opcode;
  if (is_same && frame.packet.info->operation == Operation::kReadRequest) {
    // The rest of a READ may be asked for.
    const auto done =
        static_cast<uint32_t>(Distance(sent.psn, again.psn)) * uint64_t{MtuOf(flow, sent)};
    is_same = (again.va == sent.va + done && again.length + done == sent.length) ||
              IsPart(flow, sent, again);
  } else if (is_same) {
    is_same = again.psn == sent.psn && again.length == sent.length && again.va == sent.va &&
              again.operands == sent.operands;
  }
  if (is_same) return;
  out.Sure(Rule::kRepeatDiffers, flow, frame, [&] {
    return absl::StrCat(PsnText(again.psn), ": ", frame.packet.info->name, " of ", again.length,
                        " bytes, in frame ", sent.frame, " ", roce::InfoOf(sent.opcode).name,
                        " of ", sent.length);
  });
}

// Whether a retransmission from `psn` on begins with `missing`, or within the READ that has it.
bool BeginsWith(Flow& flow, Psn psn, Psn missing) {
  if (psn == missing) return true;
  const SentRequest* sent = FindSent(flow, missing);
  return sent != nullptr && FindSent(flow, psn) == sent;
}

void CheckStart(const SeenFrame& frame, Flow& flow, Psn missing, Reporter& out) {
  const Psn psn = frame.packet.psn;
  if (BeginsWith(flow, psn, missing)) return;
  const auto text = [&] {
    return absl::StrCat("from ", PsnText(psn), " on, missing is ", PsnText(missing));
  };
  if (Distance(psn, missing) > 0) {
    // The acknowledgement may be lost behind the point of the capture.
    out.Unsure(Rule::kRepeatAcknowledged, flow, FrameRef::Of(frame), text);
  } else {
    // Or the network has copied or delayed the packet.
    out.Unsure(Rule::kRepeatSkips, flow, FrameRef::Of(frame), text);
  }
}

void CheckRnrWait(const SeenFrame& frame, Flow& flow, Reporter& out) {
  constexpr int64_t kClockToleranceNs = 2'000;
  RequestState& state = flow.requests;
  const int64_t early = state.rnr_until_ns - frame.time_ns;
  CheckStart(frame, flow, *state.rnr, out);
  state.rnr.reset();
  if (!frame.has_time || early <= kClockToleranceNs) return;
  out.Sure(Rule::kRnrTimer, flow, frame, [&] {
    return absl::StrCat(PsnText(frame.packet.psn), ", ", early / 1000, " us too early");
  });
}

// Selective repeat: after a timeout, a requester may send its last packet alone, so that the peer
// asks for what is missing before it.
bool IsProbe(const RequestState& state, Psn psn) {
  return state.selective && psn + 1 == state.next;
}

void CheckTimeout(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  ++flow.totals.timeouts;
  if (state.has_answer && !IsProbe(state, psn)) CheckStart(frame, flow, state.unanswered, out);
  state.retries = psn == state.retried ? state.retries + 1 : 1;
  state.retried = psn;
  if (state.retries > kMostRetries) {
    out.Missing(Rule::kRetryCount, flow, frame,
                [&] { return absl::StrCat(PsnText(psn), " for the ", state.retries, "th time"); });
  }
  if (!frame.has_time) return;
  const int64_t waited = frame.time_ns - state.progress_ns;
  flow.totals.timeout.Add(waited);
  // A response that was lost behind the capture asks for a READ again.
  const SentRequest* sent = FindSent(flow, psn);
  if ((sent != nullptr && HasResponse(*sent)) || AwaitsResponse(flow, psn, state.next)) return;
  const int64_t least = state.ack_timeout_ns.value_or(kShortestTimeoutNs);
  if (waited >= least) return;
  out.Unsure(Rule::kRepeatEarly, flow, FrameRef::Of(frame), [&] {
    return absl::StrCat(PsnText(psn), " after ", waited, " ns, time-out ", least, " ns or more");
  });
}

// Whether a selective NAK has asked for the packet, which is then sent alone.
bool IsWanted(RequestState& state, Psn first, uint32_t span) {
  return std::erase_if(state.wanted, [first, span](Psn wanted) {
           return roce::InWindow(wanted, first, std::max(span, 1u));
         }) != 0;
}

// Selective repeat: the READ, or a part of it, is asked for again and nothing else is. False: it
// may begin a go-back-N.
bool TakeReread(const SeenFrame& frame, Flow& flow, const SentRequest& sent) {
  constexpr size_t kMostRereads = 64;
  RequestState& state = flow.requests;
  const SentRequest again = Describe(frame, flow);
  if (roce::InfoOf(again.opcode).operation != Operation::kReadRequest) return false;
  const bool is_part = IsPart(flow, sent, again);
  state.selective |= is_part;
  if (!state.selective || (state.nak && state.nak->first == again.psn)) return false;
  const uint32_t mtu = MtuOf(flow, sent);
  const Psn end = is_part ? again.psn + again.length / mtu : sent.last() + 1;
  state.rereads.push_back({again.psn, end});
  if (state.rereads.size() > kMostRereads) state.rereads.pop_front();
  state.implied_nak = false;
  return true;
}

// The requester goes back to an earlier PSN: why?
void TakeRewind(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  if (state.nak) {
    ++flow.totals.nak_recoveries;
    if (frame.has_time) flow.totals.recovery.Add(frame.time_ns - state.nak->second);
    CheckStart(frame, flow, state.nak->first, out);
    // From elsewhere: a time-out has come first, and the NAK, still on its way, repeats once more.
    if (!BeginsWith(flow, frame.packet.psn, state.nak->first)) state.filled_nak = state.nak->first;
    state.nak.reset();
  } else if (state.rnr) {
    CheckRnrWait(frame, flow, out);
  } else if (state.implied_nak) {
    state.implied_nak = false;
  } else if (state.filled_nak && BeginsWith(flow, frame.packet.psn, *state.filled_nak)) {
    state.filled_nak.reset();
  } else {
    CheckTimeout(frame, flow, out);
  }
  state.progress_ns = frame.time_ns;
}

bool IsCopy(const SeenFrame& frame, const RequestState& state) {
  if (state.last_psn != frame.packet.psn || state.nak || state.rnr || state.implied_nak)
    return false;
  return !frame.has_time || frame.time_ns - state.last_ns < kShortestTimeoutNs;
}

// A packet of a gap, late or sent again.
void TakeLate(const SeenFrame& frame, Flow& flow) {
  InsertRequest(frame, flow);
  flow.totals.payload_bytes += frame.packet.payload.size();
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, frame.packet.payload.size());
}

// Judges where the repeated packet stands. `was_missing`: the capture did not have it before.
void PlaceRepeat(const SeenFrame& frame, Flow& flow, bool was_missing, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  if (flow.peer == nullptr || !state.Knows(psn)) return;
  if (state.late_next == psn || (state.repeating && psn == state.repeat_next)) return;
  if (state.repeating && Distance(state.repeat_next, psn) > 0) {
    NoteSkip(frame, flow, psn);
  } else if (!was_missing || state.nak || state.rnr) {
    TakeRewind(frame, flow, out);
  }
}

}  // namespace

void TakeRepeat(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  if (IsCopy(frame, state)) {
    ++flow.totals.duplicates;
    return;
  }
  if (!flow.is_reliable()) {
    ++flow.totals.duplicates;
    out.Unsure(Rule::kRepeatUnreliable, flow, FrameRef::Of(frame), [&] { return PsnText(psn); });
    return;
  }
  const bool was_missing = FillGap(state, psn);
  if (was_missing && state.nak && state.nak->first == psn) state.filled_nak = psn;
  const bool is_recovery = !was_missing || state.repeating || state.nak || state.rnr;
  if (was_missing) TakeLate(frame, flow);
  SentRequest* sent = FindSent(flow, psn);
  flow.totals.repeated += is_recovery ? 1 : 0;
  if (!was_missing && sent != nullptr) CompareRepeat(frame, flow, *sent, out);
  uint32_t span = 1;
  if (sent != nullptr) {
    sent->sends += was_missing ? 0 : 1;
    sent->last_ns = frame.time_ns;
    sent->ack_request |= frame.packet.ack_request;
    // The rest of a READ ends where the whole does.
    span = static_cast<uint32_t>(Distance(psn, sent->last()) + 1);
  }
  if (IsWanted(state, psn, span) ||
      (sent != nullptr && !was_missing && TakeReread(frame, flow, *sent))) {
    flow.totals.repeated += is_recovery ? 0 : 1;
    state.progress_ns = frame.time_ns;
    return;
  }
  PlaceRepeat(frame, flow, was_missing, out);
  ForgetNaks(flow, psn, span);
  if (state.skip && roce::InWindow(state.skip->missing, psn, span)) state.skip.reset();
  const Psn next = psn + span;
  state.late_next.reset();
  if (is_recovery) {
    state.repeat_next = next;
    state.repeating = next != state.next;
  } else {
    state.late_next = next;  // reordered by the network
  }
}

void NoteSkip(const SeenFrame& frame, Flow& flow, Psn to) {
  RequestState& state = flow.requests;
  if (state.skip || (state.has_answer && Distance(to, state.unanswered) >= 0)) return;
  state.skip = OpenLoss{Rule::kNotGoBackN, state.repeat_next, to, FrameRef::Of(frame)};
}

void ForgetNaks(const Flow& flow, Psn psn, uint32_t span) {
  if (flow.peer == nullptr) return;
  ResponseState& responses = flow.peer->responses;
  // Later PSNs are requested again as well.
  if (!responses.losses.empty()) {
    std::erase_if(responses.losses,
                  [psn](const OpenLoss& loss) { return Distance(psn, loss.missing) >= 0; });
  }
  const auto is_sent = [&](const std::optional<Psn>& nak) {
    return nak && roce::InWindow(*nak, psn, std::max(span, 1u));
  };
  if (is_sent(responses.nak)) responses.nak.reset();
  if (is_sent(responses.rnr)) responses.rnr.reset();
}

void CheckNakObeyed(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  if (!state.nak || !frame.has_time || frame.time_ns - state.nak->second < kNakObeyedNs) return;
  const Psn missing = state.nak->first;
  state.nak.reset();
  out.Missing(Rule::kNakIgnored, flow, frame, [&] { return PsnText(missing); });
}

}  // namespace roci::tools::judge
