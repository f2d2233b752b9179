// Judges responses with data: those of READs and atomics, and the empty READ responses to FLUSH and
// ATOMIC WRITE.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

void TakeReadResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out);
void TakeAtomicResponse(const SeenFrame& frame, Flow& flow, Flow& asked, Reporter& out);

}  // namespace roci::tools::judge
