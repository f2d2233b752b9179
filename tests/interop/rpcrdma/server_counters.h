// What a server has done and refused. Written by its thread, readable from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/interop/rpcrdma/call_plan.h"
#include "tests/interop/rpcrdma/header.h"
#include "tests/interop/rpcrdma/reply_plan.h"

namespace rpcrdma {

// Why a connection was closed.
enum class CloseReason {
  kPeerDisconnected,
  kWorkRequestFailed,  // a completion with an error: wrong key, dead peer, too long SEND
  kPostFailed,
  kServiceDropped,
  kIdle,     // no call for long
  kStalled,  // work requests that do not complete: a peer without receives, or one that is gone
  kServerStopped,
};
inline constexpr size_t kCloseReasons = 7;
const char* Name(CloseReason reason);

class Count {
 public:
  void Add(uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

struct ServerCounters {
  Count connections;          // accepted
  Count refused_connections;  // too many, or out of resources
  Count calls;                // given to the service
  Count replies;              // SENDs of replies, errors not counted
  Count reads, read_bytes;    // RDMA READs of Read chunks
  Count writes, write_bytes;  // RDMA WRITEs into Write and Reply chunks
  Count write_chunk_replies, reply_chunk_replies;
  Count invalidations;  // SENDs with invalidate
  Count pulled_up;      // replies copied together for want of scatter/gather elements
  Count version_errors, chunk_errors;  // RDMA_ERROR sent
  Count short_messages;                // shorter than a header with empty lists: ignored
  Count ignored_messages;              // RDMA_DONE and RDMA_ERROR received
  Count wrong_xids;                    // header and message disagree
  Count unreadable_chunks;             // Read chunks of a peer that permits no RDMA READ
  Count oversized_batches;             // more work requests than the send queue holds
  Count waits_for_buffers, waits_for_send_queue;
  std::array<Count, kHeaderFaults> header_faults;
  std::array<Count, kCallFaults> call_faults;
  std::array<Count, kReplyFaults> reply_faults;
  std::array<Count, kCloseReasons> closed;

  // One line for each counter that is not 0.
  std::string Text() const;
};

}  // namespace rpcrdma
