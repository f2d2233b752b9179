// How a call message is put together from the payload of its SEND and its Read chunks (RFC 8166,
// sections 3.4.5, 3.5 and 4.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/interop/rpcrdma/header.h"

namespace rpcrdma {

// A part of the assembled message. Parts follow each other without gaps.
struct CallPart {
  enum class Source { kPayload, kRead, kZeros };
  Source source = Source::kPayload;
  size_t to = 0;  // offset in the message
  size_t length = 0;
  size_t from = 0;  // kPayload: offset in the payload
  uint32_t handle = 0;
  uint64_t remote = 0;  // kRead: address at the requester
};

struct CallPlan {
  std::vector<CallPart> parts;
  size_t length = 0;  // of the message, in bytes
};

// Why the chunks of a call do not make a message. All are answered by ERR_CHUNK.
enum class CallFault {
  kNone,
  kPositionZeroInMsg,  // a Position Zero Read chunk beside an inline message
  kNoPositionZero,     // Nomsg without a Position Zero Read chunk
  kPayloadInNomsg,     // bytes behind a Nomsg header
  kUnalignedPosition,  // XDR items begin at multiples of four
  kPositionInChunk,    // a chunk begins within another one
  kPositionBeyondEnd,  // a chunk begins behind the end of what it is inserted in
  kTooLong,            // the message exceeds the receiver's limit
};
inline constexpr size_t kCallFaults = 8;
const char* Name(CallFault fault);

// `payload_bytes`: what follows the header in the SEND. `max_bytes` bounds the message.
CallFault PlanCall(const Header& header, size_t payload_bytes, size_t max_bytes, CallPlan& plan);

}  // namespace rpcrdma
