#include "tools/judge/responses.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::AethKind;
using roce::Distance;
using roce::Operation;
using roce::Psn;

Operation OperationOf(const SentRequest& sent) { return roce::InfoOf(sent.opcode).operation; }
// Answered by READ responses.
bool IsRead(const SentRequest& sent) {
  const Operation operation = OperationOf(sent);
  return operation == Operation::kReadRequest || operation == Operation::kFlush ||
         operation == Operation::kAtomicWrite;
}

constexpr size_t kMostLosses = 64;

void ReportLoss(Flow& flow, const OpenLoss& loss, Reporter& out) {
  out.Unsure(loss.rule, flow, loss.frame, [&] {
    return absl::StrCat(PsnText(loss.seen), ", missing is ", PsnText(loss.missing),
                        ", which does not come again");
  });
  flow.may_lack_frames = true;
}

void NoteLoss(const SeenFrame& frame, Rule rule, Psn missing, Flow& flow, Flow& asked,
              Reporter& out) {
  std::vector<OpenLoss>& losses = flow.responses.losses;
  if (losses.size() == kMostLosses) {
    ReportLoss(flow, losses.front(), out);
    losses.erase(losses.begin());
  }
  losses.push_back({rule, missing, frame.packet.psn, FrameRef::Of(frame)});
  asked.requests.implied_nak = true;  // the requester may ask again (9.7.5)
}

// A missing response comes: late, or for a request that was repeated before.
void ForgetLoss(Flow& flow, Psn psn) {
  if (flow.responses.losses.empty()) return;
  std::erase_if(flow.responses.losses, [psn](const OpenLoss& loss) { return loss.missing == psn; });
}

// ---- Progress of the requester ----

// A gap that is acknowledged: the capture lacks the requests, or the responder had none.
void CheckGaps(const SeenFrame& frame, Flow& asked, Psn end, Reporter& out) {
  std::vector<PsnGap>& gaps = asked.requests.gaps;
  for (size_t i = 0; i < gaps.size();) {
    const PsnGap gap = gaps[i];
    if (Distance(gap.begin, end) <= 0) {
      ++i;
      continue;
    }
    out.Unsure(Rule::kPsnGap, asked, gap.frame, [&] {
      return absl::StrCat(PsnText(gap.begin), " to ", PsnText(gap.end - 1),
                          ", acknowledged in frame ", frame.number);
    });
    asked.may_lack_frames = true;
    gaps.erase(gaps.begin() + static_cast<ptrdiff_t>(i));
  }
}

// READs and atomics before `end` whose responses have not come.
void CheckOvertaken(const SeenFrame& frame, Flow& flow, Flow& asked, Psn end, Reporter& out) {
  if (asked.requests.awaiting == 0) return;
  std::deque<SentRequest>& sent = asked.requests.sent;
  for (auto each = sent.rbegin(); each != sent.rend(); ++each) {
    if (Distance(each->psn, end) <= 0) continue;
    if (Distance(each->last(), asked.requests.unanswered) > 0) break;
    if (!HasResponse(*each) || each->is_answered) continue;
    SetAnswered(asked, *each);
    const Psn unanswered = asked.requests.unanswered;
    const Psn missing = Distance(each->psn, unanswered) > 0 ? unanswered : each->psn;
    NoteLoss(frame, Rule::kAckOvertakes, missing, flow, asked, out);
  }
}

// Everything before `end` is answered.
void Advance(const SeenFrame& frame, Flow& flow, Flow& asked, Psn end, Reporter& out) {
  RequestState& state = asked.requests;
  if (Distance(state.unanswered, end) <= 0) return;
  if (!state.gaps.empty()) CheckGaps(frame, asked, end, out);
  CheckOvertaken(frame, flow, asked, end, out);
  if (state.skip && Distance(state.skip->missing, end) > 0) {
    ReportLoss(asked, *state.skip, out);
    state.skip.reset();
  }
  state.unanswered = end;
  state.has_answer = true;
  state.progress_ns = frame.time_ns;
  state.retries = 0;
}

void MeasureRtt(const SeenFrame& frame, Flow& asked, const SentRequest* sent) {
  if (sent == nullptr || !sent->ack_request || sent->sends != 1 || !frame.has_time) return;
  asked.totals.rtt.Add(frame.time_ns - sent->last_ns);
}

// ---- MSN and credits ----

// A later response has no smaller MSN than an earlier one.
bool GoesBackwards(const SeenFrame& frame, Flow& flow, Reporter& out) {
  const Psn psn = frame.packet.psn;
  const roce::Msn msn = frame.packet.ext.aeth.msn;
  auto& newest = flow.responses.newest_msn;
  const bool is_later = !newest || Distance(newest->first, psn) >= 0;
  const bool is_wrong = newest && is_later && Distance(newest->second, msn) < 0;
  if (is_wrong) {
    out.Sure(Rule::kMsn, flow, frame, [&] {
      return absl::StrCat("MSN ", msn.value(), " with ", PsnText(psn), " after ",
                          newest->second.value(), " with ", PsnText(newest->first));
    });
  }
  if (is_later) newest.emplace(psn, msn);
  return is_wrong;
}

// The MSN is the number of complete messages: at least `least`, at most all that were sent. It may
// be newer than the PSN. Both count from an unknown base, which each response narrows.
void CheckMsn(const SeenFrame& frame, Flow& flow, const Flow& asked, const SentRequest& sent,
              uint32_t least, Reporter& out) {
  ResponseState& state = flow.responses;
  if (sent.epoch != asked.requests.epoch) return;
  const roce::Msn msn = frame.packet.ext.aeth.msn;
  if (GoesBackwards(frame, flow, out)) {
    state.has_msn = false;
    return;
  }
  if (!state.has_msn || state.epoch != sent.epoch) {
    state.has_msn = true;
    state.epoch = sent.epoch;
    state.msn_base = roce::Msn(msn.value() - least);
    state.msn_least = static_cast<int32_t>(least - asked.requests.messages);
    state.msn_most = 0;
    return;
  }
  const int32_t most = Distance(state.msn_base, roce::Msn(msn.value() - least));
  const int32_t lowest = Distance(state.msn_base, roce::Msn(msn.value() - asked.requests.messages));
  if (most < state.msn_least || lowest > state.msn_most) {
    const uint32_t expected = state.msn_base.value() + least;
    out.Sure(Rule::kMsn, flow, frame, [&] {
      return absl::StrCat("MSN ", msn.value(), " with ", PsnText(frame.packet.psn), " instead of ",
                          (expected + static_cast<uint32_t>(state.msn_least)) & roce::kMask24,
                          " to ",
                          (state.msn_base.value() + asked.requests.messages +
                           static_cast<uint32_t>(state.msn_most)) &
                              roce::kMask24);
    });
    state.has_msn = false;
    return;
  }
  state.msn_most = std::min(state.msn_most, most);
  state.msn_least = std::max(state.msn_least, lowest);
}

void TakeCredits(const SeenFrame& frame, const Flow& flow, Flow& asked, const SentRequest& sent) {
  const roce::Aeth aeth = frame.packet.ext.aeth;
  RequestState& state = asked.requests;
  if (aeth.value() == roce::kNoCredits) {
    state.has_credits = false;
    return;
  }
  if (sent.epoch != state.epoch || !flow.responses.has_msn) return;
  // The MSN may be newer than the PSN: count that in favour of the requester.
  const auto known = flow.responses.msn_base.value() +
                     static_cast<uint32_t>(flow.responses.msn_least) + sent.messages;
  const int32_t newer = std::max(Distance(roce::Msn(known), aeth.msn), 0);
  const uint32_t limit =
      sent.receives + static_cast<uint32_t>(newer) + roce::CreditsOf(aeth.value());
  const bool is_first = !state.has_credits || state.credit_epoch != state.epoch;
  if (is_first) state.credits_since_ns = frame.time_ns;
  if (is_first || static_cast<int32_t>(limit - state.credit_limit) > 0) state.credit_limit = limit;
  state.has_credits = true;
  state.credit_epoch = state.epoch;
}

// ---- Acknowledgements ----

void TakeAck(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  ResponseState& state = flow.responses;
  const bool is_newer = !state.last_ack || Distance(*state.last_ack, psn) >= 0;
  if (!is_newer && asked.totals.repeated == state.repeats_at_ack &&
      Distance(psn, asked.requests.unanswered) > 1) {
    out.Unsure(Rule::kAckBackwards, flow, FrameRef::Of(frame), [&] {
      return absl::StrCat(PsnText(psn), " after ", PsnText(*state.last_ack),
                          ", or the network has delayed it");
    });
  }
  if (is_newer) {
    state.last_ack = psn;
    state.repeats_at_ack = asked.totals.repeated;
  }
  const SentRequest* sent = FindSent(asked, psn);
  MeasureRtt(frame, asked, sent);
  Advance(frame, flow, asked, psn + 1, out);
  if (sent == nullptr) return;
  CheckMsn(frame, flow, asked, *sent, sent->messages, out);
  TakeCredits(frame, flow, asked, *sent);
}

// The PSN of a NAK has not been executed, all earlier ones have.
void TakeSequenceNak(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  ResponseState& state = flow.responses;
  ++flow.totals.naks;
  if (state.rnr == psn) {
    out.Sure(Rule::kNakAfterRnr, flow, frame, [&] { return PsnText(psn); });
    return;
  }
  if (state.nak == psn) {
    out.Missing(Rule::kSecondNak, flow, frame, [&] { return PsnText(psn); });
    return;
  }
  state.nak = psn;
  // The gap is behind a later packet.
  if (Distance(psn, asked.requests.next) < 2) {
    state.open = OpenQuestion{Rule::kNakWithoutGap, psn, FrameRef::Of(frame)};
  }
  asked.requests.nak.emplace(psn, frame.time_ns);
}

// Only the packets that it lists have not arrived.
void TakeSelectiveNak(const SeenFrame& frame, Flow& flow, Flow& asked) {
  const Psn psn = frame.packet.psn;
  const Psn first = psn;  // of those that the NAK may list
  RequestState& state = asked.requests;
  ++flow.totals.selective_naks;
  state.selective = true;
  constexpr uint32_t kPsns = roce::MissingEth::kPsns;
  std::erase_if(state.wanted,
                [first](Psn wanted) { return !roce::InWindow(wanted, first, kPsns); });
  for (uint32_t i = 0; i < kPsns; ++i) {
    if (!frame.packet.ext.missing.Has(i)) continue;
    // The gap is behind a later packet.
    if (Distance(psn + i, state.next) < 2) {
      flow.responses.open = OpenQuestion{Rule::kNakWithoutGap, psn + i, FrameRef::Of(frame)};
    }
    if (std::ranges::find(state.wanted, psn + i) == state.wanted.end()) {
      state.wanted.push_back(psn + i);
    }
  }
}

void TakeRnrNak(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  ResponseState& state = flow.responses;
  ++flow.totals.rnr_naks;
  if (state.rnr == psn) {
    out.Missing(Rule::kSecondNak, flow, frame, [&] { return absl::StrCat("RNR, ", PsnText(psn)); });
    return;
  }
  state.rnr = psn;
  state.nak.reset();
  asked.requests.nak.reset();
  asked.requests.rnr = psn;
  asked.requests.rnr_until_ns =
      frame.time_ns + static_cast<int64_t>(roce::kRnrTimerNs[frame.packet.ext.aeth.value()]);
}

void TakeNak(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  const roce::Aeth aeth = frame.packet.ext.aeth;
  if (Distance(psn, asked.requests.unanswered) > 0 && asked.requests.has_answer) {
    out.Unsure(Rule::kNakAcknowledged, flow, FrameRef::Of(frame), [&] {
      return absl::StrCat(PsnText(psn), ", acknowledged up to ",
                          PsnText(asked.requests.unanswered - 1));
    });
    return;
  }
  Advance(frame, flow, asked, psn, out);
  if (aeth.kind() == AethKind::kRnrNak) {
    TakeRnrNak(frame, flow, asked, out);
  } else if (frame.packet.info->Has(roce::ExtHeader::kMissing)) {
    TakeSelectiveNak(frame, flow, asked);
  } else if (aeth.nak_code() == roce::NakCode::kPsnSequenceError) {
    TakeSequenceNak(frame, flow, asked, out);
  } else {
    flow.responses.fault = psn;
  }
  const SentRequest* sent = FindSent(asked, psn);
  if (sent == nullptr) return;
  const bool is_last = roce::InfoOf(sent->opcode).IsLast();
  CheckMsn(frame, flow, asked, *sent, sent->messages - (is_last ? 1 : 0), out);
}

// ---- READs and atomics ----

// False: it is a repetition that no request asked for.
bool CheckReadPlace(const SeenFrame& frame, Flow& flow, Flow& asked, const SentRequest& sent,
                    Reporter& out) {
  ResponseState& state = flow.responses;
  const Psn psn = frame.packet.psn;
  const Psn expected = state.reading ? state.read_next : sent.psn;
  const int32_t ahead = Distance(expected, psn);
  if (sent.sends == 1 && (ahead < 0 || sent.is_answered)) {
    out.Unsure(Rule::kReadRepeated, flow, FrameRef::Of(frame), [&] {
      return absl::StrCat(PsnText(psn), ", or the network has copied or delayed it");
    });
    return false;
  }
  if (ahead > 0 && (sent.sends == 1 || state.reading)) {
    flow.totals.missing += static_cast<uint64_t>(ahead);
    NoteLoss(frame, Rule::kReadGap, expected, flow, asked, out);
  }
  return true;
}

void CheckReadForm(const SeenFrame& frame, Flow& flow, const Flow& asked, const SentRequest& sent,
                   Reporter& out) {
  if (sent.span == 0) return;
  const roce::OpcodeInfo& info = *frame.packet.info;
  const Psn psn = frame.packet.psn;
  const bool is_last = psn == sent.last();
  // A READ that is asked for again may begin anywhere.
  const bool first_fits = sent.sends > 1 || info.IsFirst() == (psn == sent.psn);
  if (info.IsLast() != is_last || !first_fits) {
    out.Sure(Rule::kReadPosition, flow, frame, [&] {
      return absl::StrCat(info.name, " with ", PsnText(psn), ", the READ has ", PsnText(sent.psn),
                          " to ", sent.last().value());
    });
    return;
  }
  const uint32_t length = OperationOf(sent) == Operation::kReadRequest ? sent.length : 0;
  const uint32_t mtu = MtuOf(asked, sent);
  const uint32_t expected = is_last ? length - (sent.span - 1) * mtu : mtu;
  if (frame.packet.payload.size() == expected) return;
  out.Sure(Rule::kReadLength, flow, frame, [&] {
    return absl::StrCat(info.name, " of ", frame.packet.payload.size(), " bytes instead of ",
                        expected);
  });
}

// MSN and syndrome of a response to `sent`, which itself is one message.
void CheckResponseAeth(const SeenFrame& frame, Flow& flow, Flow& asked, const SentRequest& sent,
                       Reporter& out) {
  if (!frame.packet.info->Has(roce::ExtHeader::kAeth)) return;
  if (frame.packet.ext.aeth.kind() != AethKind::kAck) {
    out.Sure(Rule::kReadSyndrome, flow, frame,
             [&] { return absl::StrFormat("0x%02x", frame.packet.ext.aeth.syndrome); });
    return;
  }
  CheckMsn(frame, flow, asked, sent, sent.messages - 1, out);
}

// Selective repeat: the next response of a part of a READ that was asked for again.
bool IsReread(RequestState& state, Psn psn) {
  const auto part = std::ranges::find_if(
      state.rereads, [psn](const PsnRange& range) { return range.begin == psn; });
  if (part == state.rereads.end()) return false;
  part->begin = psn + 1;
  if (part->begin == part->end) state.rereads.erase(part);
  return true;
}

// It fills a gap in the responses, and tells nothing about those that follow it.
void TakeReread(const SeenFrame& frame, Flow& flow, Flow& asked, SentRequest& sent, Reporter& out) {
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  const bool is_last = sent.span != 0 && frame.packet.psn == sent.last();
  CheckResponseAeth(frame, flow, asked, sent, out);
  if (is_last) SetAnswered(asked, sent);
  asked.requests.progress_ns = frame.time_ns;
  flow.totals.payload_bytes += bytes;
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, bytes);
}

void TakeReadResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  const auto bytes = static_cast<uint32_t>(frame.packet.payload.size());
  if (!frame.packet.info->IsLast()) LearnMtu(asked, bytes);
  SentRequest* sent = FindSent(asked, psn);
  if (sent == nullptr || !IsRead(*sent)) {
    out.Missing(Rule::kReadUnasked, flow, frame, [&] {
      return absl::StrCat(PsnText(psn), sent == nullptr ? "" : ", the request is ",
                          sent == nullptr ? "" : roce::InfoOf(sent->opcode).name);
    });
    return;
  }
  Advance(frame, flow, asked, sent->psn, out);
  ForgetLoss(flow, psn);
  if (IsReread(asked.requests, psn)) return TakeReread(frame, flow, asked, *sent, out);
  if (!CheckReadPlace(frame, flow, asked, *sent, out)) return;
  CheckReadForm(frame, flow, asked, *sent, out);
  CheckResponseAeth(frame, flow, asked, *sent, out);
  if (psn == sent->psn) MeasureRtt(frame, asked, sent);
  const bool is_last = sent->span != 0 && psn == sent->last();
  if (is_last) SetAnswered(asked, *sent);
  RequestState& state = asked.requests;
  if (Distance(state.unanswered, psn + 1) > 0) state.unanswered = psn + 1;
  state.has_answer = true;
  state.progress_ns = frame.time_ns;
  flow.responses.reading = !is_last;
  flow.responses.read_next = psn + 1;
  flow.totals.payload_bytes += bytes;
  if (frame.has_time) flow.totals.goodput.Add(frame.time_ns, bytes);
}

void TakeAtomicResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out) {
  const Psn psn = frame.packet.psn;
  SentRequest* sent = FindSent(asked, psn);
  if (sent == nullptr || !IsAtomic(OperationOf(*sent))) {
    out.Missing(Rule::kAtomicUnasked, flow, frame, [&] { return PsnText(psn); });
    return;
  }
  Advance(frame, flow, asked, sent->psn, out);
  ForgetLoss(flow, psn);
  const uint64_t original = frame.packet.ext.atomic_ack.original;
  if (sent->has_original && sent->original != original) {
    out.Sure(Rule::kAtomicReplay, flow, frame, [&] {
      return absl::StrFormat("%s: 0x%x, at first 0x%x", PsnText(psn), original, sent->original);
    });
  }
  sent->has_original = true;
  sent->original = original;
  CheckResponseAeth(frame, flow, asked, *sent, out);
  MeasureRtt(frame, asked, sent);
  SetAnswered(asked, *sent);
  Advance(frame, flow, asked, psn + 1, out);
}

// ---- All responses ----

bool CheckSyndrome(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (!frame.packet.info->Has(roce::ExtHeader::kAeth)) return true;
  const roce::Aeth aeth = frame.packet.ext.aeth;
  constexpr uint8_t kLastNak = 4;
  const bool is_reserved = aeth.kind() == AethKind::kReserved ||
                           (aeth.kind() == AethKind::kNak && aeth.value() > kLastNak);
  if (!is_reserved) return true;
  out.Sure(Rule::kSyndrome, flow, frame, [&] { return absl::StrFormat("0x%02x", aeth.syndrome); });
  return false;
}

// Nothing comes after a fatal NAK but responses to earlier requests.
void CheckFault(const SeenFrame& frame, Flow& flow, Reporter& out) {
  std::optional<Psn>& fault = flow.responses.fault;
  if (!fault || Distance(*fault, frame.packet.psn) < 0) return;
  const Psn psn = *fault;
  fault.reset();
  const bool is_ack = frame.packet.info->operation != Operation::kAcknowledge ||
                      frame.packet.ext.aeth.kind() == AethKind::kAck;
  if (!is_ack) return;
  out.Missing(Rule::kAckAfterFault, flow, frame,
              [&] { return absl::StrCat(PsnText(frame.packet.psn), ", refused ", PsnText(psn)); });
}

// A READ whose length in PSNs is not known yet reaches beyond `next`.
bool MayBeOfOpenRead(const Flow& asked, const SeenFrame& frame) {
  const std::deque<SentRequest>& sent = asked.requests.sent;
  return frame.packet.info->operation == Operation::kReadResponse && !sent.empty() &&
         sent.back().span == 0;
}

}  // namespace

void ReportLosses(Flow& flow, Reporter& out) {
  for (const OpenLoss& loss : flow.responses.losses) ReportLoss(flow, loss, out);
  flow.responses.losses.clear();
}

void JudgeResponse(const SeenFrame& frame, Flow& flow, Reporter& out) {
  if (!CheckSyndrome(frame, flow, out) || flow.peer == nullptr) return;
  Flow& asked = *flow.peer;
  if (!asked.requests.known) return;
  const Psn psn = frame.packet.psn;
  if (Distance(psn, asked.requests.next) > 0 && !MayBeAnswered(asked, psn)) return;
  CheckFault(frame, flow, out);
  if (Distance(asked.requests.next, psn) >= 0 && !MayBeOfOpenRead(asked, frame)) {
    const bool is_nak = frame.packet.info->operation == Operation::kAcknowledge &&
                        frame.packet.ext.aeth.kind() == AethKind::kNak;
    flow.responses.open =
        OpenQuestion{is_nak ? Rule::kNakWithoutGap : Rule::kAckUnsent, psn, FrameRef::Of(frame)};
    return;
  }
  switch (frame.packet.info->operation) {
    case Operation::kReadResponse:
      TakeReadResponse(frame, flow, asked, out);
      break;
    case Operation::kAtomicAcknowledge:
      TakeAtomicResponse(frame, flow, asked, out);
      break;
    default:
      if (frame.packet.ext.aeth.kind() == AethKind::kAck) {
        TakeAck(frame, flow, asked, out);
      } else {
        TakeNak(frame, flow, asked, out);
      }
  }
}

}  // namespace roci::tools::judge
