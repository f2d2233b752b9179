#include "tools/judge/psn_gaps.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/judge/psn_text.h"

namespace roci::tools::judge {

using roce::Distance;
using roce::Psn;

void StartRequests(const SeenFrame& frame, Flow& flow) {
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
  if (!flow.is_reliable()) return;
  if (state.gaps.size() == kMostGaps) state.gaps.erase(state.gaps.begin());
  state.gaps.push_back({state.next, frame.packet.psn, FrameRef::Of(frame)});
}

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
    StartRequests(frame, flow);
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

}  // namespace roci::tools::judge
