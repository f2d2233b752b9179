// Checks of single packets: constants of the headers, and what all packets of a flow have in
// common.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// The rule that a frame breaks which the parser refuses with `reason`.
Rule RuleOf(roce::DropReason reason);

// `frame` is a packet of `flow`.
void CheckConstants(const SeenFrame& frame, Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
