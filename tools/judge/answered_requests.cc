#include "tools/judge/answered_requests.h"

#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/judge/missing_responses.h"
#include "tools/judge/psn_text.h"
#include "tools/judge/sent_requests.h"

namespace roci::tools::judge {
namespace {

using roce::Distance;
using roce::Psn;

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

}  // namespace

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

}  // namespace roci::tools::judge
