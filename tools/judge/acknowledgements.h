// Judges ACKs and NAKs.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

void TakeAck(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out);
void TakeNak(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out);

}  // namespace roci::tools::judge
