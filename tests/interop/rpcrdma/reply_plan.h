// Where the parts of a reply message go: into the requester's Write and Reply chunks, or inline
// (RFC 8166, sections 3.4.6, 3.5 and 4.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/interop/rpcrdma/header.h"

namespace rpcrdma {

// A range of the reply message, in bytes.
struct Range {
  size_t offset = 0;
  size_t length = 0;
  bool operator==(const Range&) const = default;
};

// One RDMA WRITE.
struct RemoteWrite {
  Range from;  // of the message
  uint32_t handle = 0;
  uint64_t to = 0;  // address at the requester
  bool operator==(const RemoteWrite&) const = default;
};

struct ReplyPlan {
  Header header;
  std::vector<RemoteWrite> writes;
  std::vector<Range> payload;  // what follows the header in the SEND
};

// Why a reply cannot be delivered. All are answered by ERR_CHUNK (RFC 8166,
// section 4.5.3).
enum class ReplyFault {
  kNone,
  kWriteChunkTooShort,  // for the data that is placed directly
  kReplyChunkTooShort,
  kTooLongForInline,  // and the requester offered no Reply chunk
  kBadBulk,           // the service named a range that is none: its defect
};
inline constexpr size_t kReplyFaults = 5;
const char* Name(ReplyFault fault);

// `call`: the header with the requester's chunks. The message has `message_bytes` bytes, of which
// `bulk` may be placed directly. `inline_bytes` bounds the SEND.
ReplyFault PlanReply(const Header& call, size_t message_bytes, const Range& bulk,
                     size_t inline_bytes, uint32_t credits, ReplyPlan& plan);

// A key that the call offered, for a SEND with invalidate (RFC 8797, section 3.2); 0 if it offered
// none.
uint32_t KeyToInvalidate(const Header& call);

}  // namespace rpcrdma
