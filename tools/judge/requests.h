// Judges the requests of a flow: sequence, lengths, retransmissions.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

void JudgeRequest(const SeenFrame& frame, Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
