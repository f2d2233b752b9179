#include "tools/judge/requests.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/judge/psn_text.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::OpcodeInfo;
using roce::Operation;
using roce::Position;
using roce::Psn;

// A PSN that is farther away is an error, or belongs to a new connection.
constexpr int32_t kFarPsns = 1 << 16;
constexpr uint32_t kMostRetries = 7;  // retry_cnt has three bits
constexpr int64_t kNakObeyedNs = 500'000'000;
// Without credits a requester is not limited, and does not know of the first ones at once.
constexpr int64_t kCreditsKnownNs = 10'000'000;

bool IsReliable(const Flow& flow) { return flow.transport != roce::Transport::kUc; }
bool TakesReceive(const OpcodeInfo& info) {
  return info.operation == Operation::kSend || info.Has(roce::ExtHeader::kImmDt);
}

SentRequest Describe(const SeenFrame& frame, const Flow& flow) {
  const roce::Packet& packet = frame.packet;
  SentRequest sent;
  sent.psn = packet.psn;
  sent.opcode = packet.opcode;
  sent.ack_request = packet.ack_request;
  sent.length = static_cast<uint32_t>(packet.payload.size());
  sent.last_ns = frame.time_ns;
  sent.frame = frame.number;
  if (packet.info->operation == Operation::kReadRequest) {
    sent.length = packet.ext.reth.length;
    sent.span = ReadSpan(sent.length, flow.mtu);
    sent.va = packet.ext.reth.va;
  } else if (IsAtomic(packet.info->operation)) {
    sent.va = packet.ext.atomic.va;
    sent.operands = packet.ext.atomic.swap_add * 31 + packet.ext.atomic.compare;
  }
  return sent;
}

// ---- A new request: opcode, lengths, credits ----

void CheckSuccession(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  if (state.in_step) {
    const bool fits =
        state.in_message ? !info.IsFirst() && info.operation == state.operation : info.IsFirst();
    if (!fits) {
      out.Sure(Rule::kOpcodeSequence, flow, frame, [&] {
        return absl::StrCat(info.name, state.in_message ? " within a message" : " without a FIRST");
      });
      state.knows_bytes = false;
    }
  }
  state.in_step = true;
  state.in_message = !info.IsLast();
  state.operation = info.operation;
}

// FIRST and MIDDLE fill the path MTU; LAST has a byte at least.
void CheckPayload(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const OpcodeInfo& info = *frame.packet.info;
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  if (info.payload != roce::PayloadRule::kAny) return;
  if (!info.IsLast()) LearnMtu(flow, bytes);
  const bool is_full = !info.IsLast();
  const bool is_wrong = is_full ? bytes != flow.mtu
                                : (flow.mtu != 0 && bytes > flow.mtu) ||
                                      (info.position == Position::kLast && bytes == 0);
  if (!is_wrong) return;
  out.Sure(Rule::kPayloadLength, flow, frame, [&] {
    return absl::StrCat(info.name, " of ", bytes, " bytes",
                        flow.mtu != 0 ? absl::StrCat(", path MTU ", flow.mtu) : "");
  });
}

// A WRITE has the length of its RETH; no message is longer than 2^31 bytes.
void CheckMessage(const SeenFrame& frame, Flow& flow, Reporter& out) {
  constexpr uint32_t kMostBytes = 1u << 31;
  RequestState& state = flow.requests;
  const roce::Packet& packet = frame.packet;
  const OpcodeInfo& info = *packet.info;
  if (info.Has(roce::ExtHeader::kReth) && info.operation != Operation::kFlush) {
    const uint32_t stated = packet.ext.reth.length;
    if (stated > kMostBytes) {
      out.Sure(Rule::kMessageLength, flow, frame, [=] { return absl::StrCat(stated, " bytes"); });
    }
    state.stated_bytes = stated;
  }
  if (IsAtomic(info.operation) && packet.ext.atomic.va % 8 != 0) {
    out.Sure(Rule::kAtomicAddress, flow, frame,
             [&] { return absl::StrFormat("0x%x", packet.ext.atomic.va); });
  }
  if (info.IsFirst()) {
    state.knows_bytes = true;
    state.bytes = 0;
    state.message_begin = packet.psn;
  }
  state.bytes += packet.payload.size();
  if (info.operation != Operation::kWrite || !state.knows_bytes) return;
  const bool is_wrong =
      info.IsLast() ? state.bytes != state.stated_bytes : state.bytes >= state.stated_bytes;
  if (!is_wrong) return;
  out.Sure(Rule::kWriteLength, flow, frame, [&] {
    return absl::StrCat(state.bytes, " bytes with ", info.name, ", RETH ", state.stated_bytes);
  });
  state.knows_bytes = false;
}

// Without a credit, one packet may be sent; the rest when it is acknowledged (9.7.7.2).
void CheckCredits(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  if (!state.has_credits || state.credit_epoch != state.epoch || !TakesReceive(info)) return;
  if (!frame.has_time || frame.time_ns - state.credits_since_ns < kCreditsKnownNs) return;
  const uint32_t number = state.receives + 1;
  const auto beyond = static_cast<int32_t>(number - state.credit_limit);
  const bool may_go_on = info.IsFirst() || Distance(state.message_begin, state.unanswered) > 0;
  if (beyond <= 0 || (beyond == 1 && may_go_on)) return;
  out.Missing(Rule::kCredits, flow, frame, [&] {
    return absl::StrCat(PsnText(frame.packet.psn), ", ", beyond, " beyond the last credit");
  });
  state.has_credits = false;
}

// Drops the oldest request.
void Forget(Flow& flow) {
  SetAnswered(flow, flow.requests.sent.front());
  flow.requests.sent.pop_front();
}

// Sets the PSN of the next new request, and forgets those that are older than half of the PSNs.
void MoveNext(Flow& flow, Psn next) {
  RequestState& state = flow.requests;
  const auto psns_to_next = [&](Psn from) {
    return ((state.next.value() - from.value()) & roce::kMask24) +
           ((next.value() - state.next.value()) & roce::kMask24);
  };
  const bool has_old = psns_to_next(state.first) > kMostKnownPsns;
  if (psns_to_next(state.unanswered) >= kMostKnownPsns) {
    state.unanswered = next - (kMostKnownPsns - 1);  // `next` is later than that
  }
  state.next = next;
  if (!has_old) return;
  state.first = next - kMostKnownPsns;
  while (!state.sent.empty() && !state.Knows(state.sent.front().psn)) Forget(flow);
  std::erase_if(state.gaps, [&](const PsnGap& gap) { return !state.Knows(gap.begin); });
}

void Append(const SeenFrame& frame, Flow& flow) {
  RequestState& state = flow.requests;
  const OpcodeInfo& info = *frame.packet.info;
  SentRequest sent = Describe(frame, flow);
  if (info.IsLast()) {
    ++state.messages;
    ++flow.totals.messages;
    state.receives += TakesReceive(info) ? 1 : 0;
  }
  sent.messages = state.messages;
  sent.receives = state.receives;
  sent.epoch = state.epoch;
  if (state.unanswered == sent.psn) state.progress_ns = frame.time_ns;
  MoveNext(flow, sent.psn + std::max(sent.span, 1u));
  state.awaiting += HasResponse(sent) ? 1 : 0;
  state.sent.push_back(sent);
  if (state.sent.size() > kMostSent) Forget(flow);
  if (state.sent.size() > kMostAnswered && state.has_answer &&
      Distance(state.sent.front().last(), state.unanswered) > 0) {
    Forget(flow);
  }
}

void TakeNew(const SeenFrame& frame, Flow& flow, Reporter& out) {
  CheckSuccession(frame, flow, out);
  CheckPayload(frame, flow, out);
  CheckMessage(frame, flow, out);
  CheckCredits(frame, flow, out);
  Append(frame, flow);
  flow.totals.payload_bytes += frame.packet.payload.size();
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, frame.packet.payload.size());
}

// The requester continues at PSN `next`, which decides the findings that were still open.
void SettleQuestion(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (flow.peer == nullptr || !flow.peer->responses.open) return;
  const OpenQuestion open = *flow.peer->responses.open;
  flow.peer->responses.open.reset();
  // A capture of several queues may swap frames.
  if (frame.has_time && open.frame.has_time && frame.time_ns <= open.frame.time_ns) return;
  out.Say(open.rule, Certainty::kSure, *flow.peer, open.frame, [&] {
    return absl::StrCat(PsnText(open.psn), "; the requester had sent up to ",
                        PsnText(flow.requests.next - 1));
  });
}

// ---- Retransmissions ----

void CompareRepeat(const SeenFrame& frame, Flow& flow, const SentRequest& sent, Reporter& out) {
  SentRequest again = Describe(frame, flow);
  bool is_same = again.opcode == sent.opcode;
  if (is_same && frame.packet.info->operation == Operation::kReadRequest) {
    // The rest of a READ may be asked for.
    const auto done =
        static_cast<uint32_t>(Distance(sent.psn, again.psn)) * uint64_t{MtuOf(flow, sent)};
    is_same = again.va == sent.va + done && again.length + done == sent.length;
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

void CheckTimeout(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  ++flow.totals.timeouts;
  if (state.has_answer) CheckStart(frame, flow, state.unanswered, out);
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

// The requester goes back to an earlier PSN: why?
void TakeRewind(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  if (state.nak) {
    ++flow.totals.nak_recoveries;
    if (frame.has_time) flow.totals.recovery.Add(frame.time_ns - state.nak->second);
    CheckStart(frame, flow, state.nak->first, out);
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

// The retransmission jumps over packets that are not acknowledged. They may be lost again.
void NoteSkip(const SeenFrame& frame, Flow& flow, Psn to) {
  RequestState& state = flow.requests;
  if (state.skip || (state.has_answer && Distance(to, state.unanswered) >= 0)) return;
  state.skip = OpenLoss{Rule::kNotGoBackN, state.repeat_next, to, FrameRef::Of(frame)};
}

bool IsCopy(const SeenFrame& frame, const RequestState& state) {
  if (state.last_psn != frame.packet.psn || state.nak || state.rnr || state.implied_nak)
    return false;
  return !frame.has_time || frame.time_ns - state.last_ns < kShortestTimeoutNs;
}

// The responder may answer again.
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

// Removes `psn` from the gaps. False: it is in none.
bool FillGap(RequestState& state, Psn psn) {
  for (size_t i = 0; i < state.gaps.size(); ++i) {
    PsnGap& gap = state.gaps[i];
    if (Distance(gap.begin, psn) < 0 || Distance(psn, gap.end) <= 0) continue;
    const PsnGap rest{psn + 1, gap.end, gap.frame};
    gap.end = psn;
    const bool is_empty = gap.begin == gap.end;
    if (is_empty) state.gaps.erase(state.gaps.begin() + static_cast<ptrdiff_t>(i));
    if (rest.begin != rest.end && state.gaps.size() < kMostGaps) state.gaps.push_back(rest);
    return true;
  }
  return false;
}

// A packet of a gap, late or sent again: its place in the numbers of messages stays unknown.
void TakeLate(const SeenFrame& frame, Flow& flow) {
  RequestState& state = flow.requests;
  SentRequest sent = Describe(frame, flow);
  const auto place =
      std::find_if(state.sent.rbegin(), state.sent.rend(),
                   [&](const SentRequest& s) { return Distance(s.psn, sent.psn) > 0; });
  sent.span = std::max(sent.span, 1u);
  sent.epoch = UINT32_MAX;
  state.awaiting += HasResponse(sent) ? 1 : 0;
  state.sent.insert(place.base(), sent);
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

void TakeRepeat(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  if (IsCopy(frame, state)) {
    ++flow.totals.duplicates;
    return;
  }
  if (!IsReliable(flow)) {
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
  PlaceRepeat(frame, flow, was_missing, out);
  uint32_t span = 1;
  if (sent != nullptr) {
    sent->sends += was_missing ? 0 : 1;
    sent->last_ns = frame.time_ns;
    sent->ack_request |= frame.packet.ack_request;
    // The rest of a READ ends where the whole does.
    span = static_cast<uint32_t>(Distance(psn, sent->last()) + 1);
  }
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

// ---- Gaps and starts ----

void Start(const SeenFrame& frame, Flow& flow) {
  RequestState fresh;
  fresh.known = true;
  fresh.first = fresh.next = fresh.unanswered = frame.packet.psn;
  fresh.in_step = frame.packet.info->IsFirst();
  fresh.ack_timeout_ns = flow.requests.ack_timeout_ns;
  flow.requests = std::move(fresh);
}

void CheckStartingPsn(const SeenFrame& frame, Flow& flow, Reporter& out) {
  std::optional<Psn>& starting = flow.requests.starting_psn;
  if (!starting) return;
  const Psn expected = *starting;
  starting.reset();
  if (frame.packet.psn == expected) return;
  out.Missing(Rule::kStartingPsn, flow, frame, [&] {
    return absl::StrCat(PsnText(frame.packet.psn), " instead of ", PsnText(expected));
  });
}

void TakeGap(const SeenFrame& frame, Flow& flow, int32_t distance) {
  RequestState& state = flow.requests;
  flow.totals.missing += static_cast<uint64_t>(distance);
  state.in_step = false;
  state.knows_bytes = false;
  ++state.epoch;
  if (flow.peer != nullptr) flow.peer->responses.open.reset();
  if (!IsReliable(flow)) return;
  if (state.gaps.size() == kMostGaps) state.gaps.erase(state.gaps.begin());
  state.gaps.push_back({state.next, frame.packet.psn, FrameRef::Of(frame)});
}

// A PSN far from its neighbours: wrong if the old sequence goes on, a new connection otherwise.
void TakeFar(const SeenFrame& frame, Flow& flow) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  const bool goes_on = state.odd && roce::InWindow(psn, state.odd->first, 2);
  if (goes_on) {
    if (flow.peer != nullptr) {
      flow.peer->peer = nullptr;
      flow.peer->responses = {};
      flow.peer = nullptr;
    }
    Start(frame, flow);
    return;
  }
  state.odd.emplace(psn, FrameRef::Of(frame));
}

void SettleOdd(Flow& flow, Reporter& out) {
  const auto [psn, frame] = *flow.requests.odd;
  flow.requests.odd.reset();
  out.Say(Rule::kPsnOrder, Certainty::kSure, flow, frame, [&, psn = psn] {
    return absl::StrCat(PsnText(psn), " among ", PsnText(flow.requests.next));
  });
}

// A READ whose number of PSNs depended on the path MTU: the next request tells it.
void SettleSpan(Flow& flow, Psn psn) {
  RequestState& state = flow.requests;
  if (state.sent.empty() || state.sent.back().span != 0) return;
  SentRequest& read = state.sent.back();
  const int32_t span = Distance(read.psn, psn);
  for (uint32_t mtu = 256; mtu <= roce::kMaxPathMtuBytes; mtu *= 2) {
    if (span <= 0 || ReadSpan(read.length, mtu) != static_cast<uint32_t>(span)) continue;
    read.span = static_cast<uint32_t>(span);
    MoveNext(flow, psn);
    return;
  }
}

void CheckNakObeyed(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  if (!state.nak || !frame.has_time || frame.time_ns - state.nak->second < kNakObeyedNs) return;
  const Psn missing = state.nak->first;
  state.nak.reset();
  out.Missing(Rule::kNakIgnored, flow, frame, [&] { return PsnText(missing); });
}

}  // namespace

uint32_t ReadSpan(uint32_t length, uint32_t mtu) {
  if (length <= 256) return 1;
  return mtu == 0 ? 0 : (length - 1) / mtu + 1;
}

uint32_t MtuOf(const Flow& flow, const SentRequest& read) {
  if (flow.mtu != 0 || read.span <= 1) return flow.mtu;
  for (uint32_t mtu = 256; mtu <= roce::kMaxPathMtuBytes; mtu *= 2) {
    if (ReadSpan(read.length, mtu) == read.span) return mtu;
  }
  return 0;
}

bool MayBeAnswered(Flow& flow, Psn psn) {
  const RequestState& state = flow.requests;
  if (!state.Knows(psn)) return false;
  return Distance(psn, state.next) <= kFarPsns || FindSent(flow, psn) != nullptr;
}

SentRequest* FindSent(Flow& flow, Psn psn) {
  std::deque<SentRequest>& sent = flow.requests.sent;
  if (sent.empty()) return nullptr;
  const Psn origin = sent.front().psn;
  const int32_t at = Distance(origin, psn);
  if (at < 0) return nullptr;
  // Usually each has one PSN.
  if (static_cast<size_t>(at) < sent.size() && sent[static_cast<size_t>(at)].psn == psn) {
    return &sent[static_cast<size_t>(at)];
  }
  auto after = std::upper_bound(sent.begin(), sent.end(), at, [&](int32_t value, const auto& each) {
    return value < Distance(origin, each.psn);
  });
  SentRequest& found = *--after;
  return Distance(found.last(), psn) <= 0 ? &found : nullptr;
}

void LearnMtu(Flow& flow, uint32_t bytes) {
  if (flow.mtu != 0 || !roce::PathMtuFromBytes(bytes)) return;
  flow.mtu = bytes;
  RequestState& state = flow.requests;
  if (state.sent.empty() || state.sent.back().span != 0) return;
  state.sent.back().span = ReadSpan(state.sent.back().length, bytes);
  MoveNext(flow, state.sent.back().last() + 1);
}

bool IsAtomic(Operation operation) {
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

bool HasResponse(const SentRequest& sent) {
  const Operation operation = roce::InfoOf(sent.opcode).operation;
  return operation != Operation::kSend && operation != Operation::kWrite;
}

void SetAnswered(Flow& flow, SentRequest& sent) {
  if (!sent.is_answered && HasResponse(sent)) --flow.requests.awaiting;
  sent.is_answered = true;
}

bool AwaitsResponse(Flow& flow, Psn begin, Psn end) {
  if (flow.requests.awaiting == 0) return false;
  const std::deque<SentRequest>& sent = flow.requests.sent;
  return std::any_of(sent.rbegin(), sent.rend(), [&](const SentRequest& each) {
    if (Distance(each.last(), begin) > 0 || Distance(each.psn, end) <= 0) return false;
    return !each.is_answered && HasResponse(each);
  });
}

void JudgeRequest(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  if (!state.known) {
    CheckStartingPsn(frame, flow, out);
    Start(frame, flow);
  }
  SettleSpan(flow, psn);
  const int32_t distance = Distance(state.next, psn);
  if (std::abs(distance) > kFarPsns) {
    TakeFar(frame, flow);
    if (state.odd) return;
  } else if (state.odd) {
    SettleOdd(flow, out);
  }
  CheckNakObeyed(frame, flow, out);
  if (Distance(state.next, psn) < 0) {
    TakeRepeat(frame, flow, out);
  } else {
    if (state.repeating) {
      if (flow.peer != nullptr) NoteSkip(frame, flow, psn);
      state.repeating = false;
    }
    if (psn == state.next) {
      SettleQuestion(frame, flow, out);
    } else {
      TakeGap(frame, flow, Distance(state.next, psn));
    }
    ForgetNaks(flow, psn, 1);
    TakeNew(frame, flow, out);
  }
  state.last_psn = psn;
  state.last_ns = frame.time_ns;
}

}  // namespace roci::tools::judge
