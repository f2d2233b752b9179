// Which chunks a client gives to a call: inline as far as the thresholds permit (RFC 8166, sections
// 3.3.2, 3.4 and 3.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/interop/rpcrdma/reply_plan.h"

namespace rpcrdma {

// A call as its maker describes it. All in bytes.
struct CallShape {
  size_t message_bytes = 0;
  Range bulk = {};  // of the message: may be pulled by the server (data of WRITE), without round-up
  size_t data_room = 0;         // for the part of the reply that may be placed directly, at most
  size_t most_reply_bytes = 0;  // of the rest of the reply, at most
};

struct MarshalPlan {
  bool read_chunk = false;   // of the bulk, at its offset
  bool long_call = false;    // all of the message is a Position Zero Read chunk
  bool write_chunk = false;  // for `data_room` bytes
  bool reply_chunk = false;  // for `reply_chunk_bytes`
  size_t reply_chunk_bytes = 0;
  std::vector<Range> payload;  // of the message: what follows the header in the SEND
};

// `segment_bytes`: the longest segment of a chunk.
MarshalPlan PlanMarshal(const CallShape& shape, size_t send_bytes, size_t receive_bytes,
                        size_t segment_bytes);

// The segments of `length` bytes at `address`; none for no bytes.
Chunk SegmentsOf(uint32_t handle, uint64_t address, size_t length, size_t segment_bytes);

}  // namespace rpcrdma
