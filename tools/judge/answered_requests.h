// Progress of the peer's requests as responses show it: how far they are answered, and how long
// that took.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// Everything before `end` is answered.
void Advance(const SeenFrame& frame, Flow& flow, Flow& asked, roce::Psn end, Reporter& out);

// `sent`: the request that `frame` answers, or null.
void MeasureRtt(const SeenFrame& frame, Flow& asked, const SentRequest* sent);

}  // namespace roci::tools::judge
