#include "tools/judge/missing_responses.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/judge/psn_text.h"

namespace roci::tools::judge {

using roce::Psn;

constexpr size_t kMostLosses = 64;

void ReportLoss(Flow& flow, const OpenLoss& loss, Reporter& out) {
  out.Unsure(loss.rule, flow, loss.frame, [&] {
    return absl::StrCat(PsnText(loss.seen), ", missing is ", PsnText(loss.missing),
                        ", which does not come again");
  });
  flow.may_lack_frames = true;
}

void ReportLosses(Flow& flow, Reporter& out) {
  for (const OpenLoss& loss : flow.responses.losses) ReportLoss(flow, loss, out);
  flow.responses.losses.clear();
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

void ForgetLoss(Flow& flow, Psn psn) {
  if (flow.responses.losses.empty()) return;
  std::erase_if(flow.responses.losses, [psn](const OpenLoss& loss) { return loss.missing == psn; });
}

}  // namespace roci::tools::judge
