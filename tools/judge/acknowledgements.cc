#include "tools/judge/acknowledgements.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/judge/answered_requests.h"
#include "tools/judge/msn_and_credits.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::AethKind;
using roce::Distance;
using roce::Psn;

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

}  // namespace

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

}  // namespace roci::tools::judge
