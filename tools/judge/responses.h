// Judges the responses of a flow against the requests of its peer.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

void JudgeResponse(const SeenFrame& frame, Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
