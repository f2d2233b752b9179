// Judges requests that are sent again: whether there is a reason, where they begin, whether they
// are the same.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// No time-out is shorter: 4.096 us * 2^1 (IBTA vol 1, 9.7.6.1.3).
inline constexpr int64_t kShortestTimeoutNs = 8'192;

// A request before `next` of the flow.
void TakeRepeat(const SeenFrame& frame, Flow& flow, Reporter& out);
// The retransmission jumps over packets that are not acknowledged, to `to`. They may be lost again.
void NoteSkip(const SeenFrame& frame, Flow& flow, roce::Psn to);
// The PSNs are sent: the responder may send NAKs for them again.
void ForgetNaks(const Flow& flow, roce::Psn psn, uint32_t span);
// A NAK must be followed by its request.
void CheckNakObeyed(const SeenFrame& frame, Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
