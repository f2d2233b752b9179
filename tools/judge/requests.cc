#include "tools/judge/requests.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tools/judge/new_requests.h"
#include "tools/judge/psn_gaps.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/retransmissions.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::Psn;

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

}  // namespace

void JudgeRequest(const SeenFrame& frame, Flow& flow, Reporter& out) {
  RequestState& state = flow.requests;
  const Psn psn = frame.packet.psn;
  if (!state.known) {
    CheckStartingPsn(frame, flow, out);
    StartRequests(frame, flow);
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
