// Responses that have not come: a finding if the requester does not ask for them again.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// `loss` is final: its request did not come again.
void ReportLoss(Flow& flow, const OpenLoss& loss, Reporter& out);
// All that are left at the end of the capture.
void ReportLosses(Flow& flow, Reporter& out);

// A response of `flow` before `frame` is `missing`. `asked` is the flow of the requests.
void NoteLoss(const SeenFrame& frame, Rule rule, roce::Psn missing, Flow& flow, Flow& asked,
              Reporter& out);
// A missing response comes: late, or for a request that was repeated before.
void ForgetLoss(Flow& flow, roce::Psn psn);

}  // namespace roci::tools::judge
