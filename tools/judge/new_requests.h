// Judges a new request: opcode, lengths, credits.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// The request at `next` of the flow, which it moves.
void TakeNew(const SeenFrame& frame, Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
