// Judges the MSN of responses, and takes the credits that they give (IBTA vol 1, 9.7.7.2).
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// The MSN is the number of complete messages: at least `least`, at most all that were sent. It may
// be newer than the PSN.
void CheckMsn(const SeenFrame& frame, Flow& flow, const Flow& asked, const SentRequest& sent,
              uint32_t least, Reporter& out);
// Of an ACK for `sent`.
void TakeCredits(const SeenFrame& frame, const Flow& flow, Flow& asked, const SentRequest& sent);

}  // namespace roci::tools::judge
