// Where the requests of a flow do not continue at its next PSN: starts, gaps, and PSNs far away.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

inline constexpr size_t kMostGaps = 64;

// The first request of a flow, or of a new connection.
void StartRequests(const SeenFrame& frame, Flow& flow);
// The first PSN is the one that the connection manager has told.
void CheckStartingPsn(const SeenFrame& frame, Flow& flow, Reporter& out);

// The request is `distance` PSNs after `next`.
void TakeGap(const SeenFrame& frame, Flow& flow, int32_t distance);
// Removes `psn` from the gaps. False: it is in none.
bool FillGap(RequestState& state, roce::Psn psn);

// A PSN far from its neighbours: wrong if the old sequence goes on, a new connection otherwise.
void TakeFar(const SeenFrame& frame, Flow& flow);
// The old sequence goes on.
void SettleOdd(Flow& flow, Reporter& out);

}  // namespace roci::tools::judge
