#include "tools/judge/msn_and_credits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/judge/psn_text.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::Psn;

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

}  // namespace

// MSN and PSN count from an unknown base, which each response narrows.
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

}  // namespace roci::tools::judge
