// Judges the requests of a flow: sequence, lengths, retransmissions.
#pragma once

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

// At most so many request packets of a flow are kept, and of those that are answered so many.
inline constexpr size_t kMostSent = 4096;
inline constexpr size_t kMostAnswered = 256;
inline constexpr size_t kMostGaps = 64;

// No time-out is shorter: 4.096 us * 2^1 (IBTA vol 1, 9.7.6.1.3).
inline constexpr int64_t kShortestTimeoutNs = 8'192;

// Half of the PSNs, in which they are ordered (IBTA vol 1, 9.7.2).
inline constexpr uint32_t kMostKnownPsns = 1u << 23;

// The PSNs of a READ of `length` bytes; 0: it depends on an unknown path MTU.
uint32_t ReadSpan(uint32_t length, uint32_t mtu);
// The path MTU of the flow, or else the only one with which the READ has its PSNs; 0: unknown.
uint32_t MtuOf(const Flow& flow, const SentRequest& read);

void JudgeRequest(const SeenFrame& frame, Flow& flow, Reporter& out);

// The request that has `psn`; null: not kept, or not seen.
SentRequest* FindSent(Flow& flow, roce::Psn psn);
// Whether the capture has shown `psn`, and a response to it may come: it is not far behind `next`,
// or its request is kept.
bool MayBeAnswered(Flow& flow, roce::Psn psn);
// Sets the path MTU from a full packet, if it is unknown and `bytes` is one.
void LearnMtu(Flow& flow, uint32_t bytes);
// COMPARE_SWAP or FETCH_ADD.
bool IsAtomic(roce::Operation operation);
// Whether its answer is a response of its own: READs, atomics, FLUSH.
bool HasResponse(const SentRequest& sent);
void SetAnswered(Flow& flow, SentRequest& sent);
// Whether requests in [begin, end) have responses of their own that were not seen.
bool AwaitsResponse(Flow& flow, roce::Psn begin, roce::Psn end);

}  // namespace roci::tools::judge
