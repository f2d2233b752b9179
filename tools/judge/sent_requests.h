// The requests of a flow that were sent, by PSN: which request a PSN is of, and whether it is
// answered.
#pragma once

#include "tools/judge/flow.h"
#include "tools/judge/seen_frame.h"

namespace roci::tools::judge {

// Limits of the request packets that are kept of a flow: of all, and of the answered ones.
inline constexpr size_t kMostSent = 4096;
inline constexpr size_t kMostAnswered = 256;
// Half of the PSNs, in which they are ordered (IBTA vol 1, 9.7.2).
inline constexpr uint32_t kMostKnownPsns = 1u << 23;
// A PSN that is farther away is an error, or belongs to another connection.
inline constexpr int32_t kFarPsns = 1 << 16;

// COMPARE_SWAP or FETCH_ADD.
bool IsAtomic(roce::Operation operation);
// Whether the request uses up a receive of the responder.
bool TakesReceive(const roce::OpcodeInfo& info);
// Whether its answer is a response of its own: READs, atomics, FLUSH.
bool HasResponse(const SentRequest& sent);

SentRequest Describe(const SeenFrame& frame, const Flow& flow);
// Adds the request at `next`, and moves that.
void AppendRequest(const SeenFrame& frame, Flow& flow);
// Adds a request before `next` that the capture did not have. Its place in the numbers of messages
// stays unknown.
void InsertRequest(const SeenFrame& frame, Flow& flow);

// The request that has `psn`; null: not kept, or not seen.
SentRequest* FindSent(Flow& flow, roce::Psn psn);
// Whether the capture has shown `psn`, and a response to it may come: it is not far behind `next`,
// or its request is kept.
bool MayBeAnswered(Flow& flow, roce::Psn psn);
void SetAnswered(Flow& flow, SentRequest& sent);
// Whether requests in [begin, end) have responses of their own that were not seen.
bool AwaitsResponse(Flow& flow, roce::Psn begin, roce::Psn end);

// The PSNs of a READ of `length` bytes; 0: it depends on an unknown path MTU.
uint32_t ReadSpan(uint32_t length, uint32_t mtu);
// The path MTU of the flow, or else the only one with which the READ has its PSNs; 0: unknown.
uint32_t MtuOf(const Flow& flow, const SentRequest& read);
// Sets the path MTU from a full packet, if it is unknown and `bytes` is one.
void LearnMtu(Flow& flow, uint32_t bytes);
// Sets the PSNs of a READ that depended on an unknown path MTU: the next request, `psn`, tells
// them.
void SettleSpan(Flow& flow, roce::Psn psn);

}  // namespace roci::tools::judge
