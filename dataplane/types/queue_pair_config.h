// Parameters of a new queue pair, and the layout of its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/types/queue_pair_match.h"
#include "roce/qp_attributes.h"
#include "roce/qp_context.h"
#include "roce/toeplitz.h"

namespace roci::dataplane {

class CompletionQueue;
class QueuePair;
class SharedReceiveQueue;
class XrcTargets;

// Receive side scaling: the hash of a frame selects one of the work queues.
struct RssConfig {
  roce::ToeplitzKey key;
  uint32_t fields;  // roce::kHash*
  // A power of two, of the same context. They outlive the queue pair that selects them.
  std::vector<QueuePair*> queues;
};

struct QueuePairConfig {
  roce::QpType type = roce::QpType::kRc;
  uint32_t pd = 0;
  // Null if nothing completes there.
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;  // null for the XRC types
  SharedReceiveQueue* srq = nullptr;   // of the same context, instead of a receive queue
  uint32_t lacking_opcodes = 0;        // bit i: roci_abi_send_opcode i, which the device lacks
  bool sq_sig_all = false;
  bool blocks_own_multicast = false;  // UD: gets no copy of its own multicast packets
  uint64_t user_handle = 0;           // what events carry
  // As the program asked, within dataplane/types/queue_limits.h.
  uint32_t max_send_wr = 1;
  uint32_t max_recv_wr = 0;
  uint32_t max_send_sge = 1;
  uint32_t max_recv_sge = 1;
  uint32_t max_inline = 0;
  const RssConfig* rss = nullptr;  // raw packet: it has no queues and receives by these
  // Raw packet: a member of RSS groups; the program calls it a work queue.
  bool is_work_queue = false;
  const XrcTargets* domain = nullptr;  // XRC receive: has the queues that requests may name
  roce::QpLimits limits;
  QueuePairOrigin origin;  // the device gives its number
};

// Granted limits and the layout of the memfd, named as in roci_abi_create_qp_response.
struct QueueLayout {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  uint32_t send_capacity, recv_capacity;  // slots
  uint32_t send_stride, recv_stride;      // bytes
  uint32_t send_queue_offset, recv_queue_offset, send_slots_offset, recv_slots_offset;
  uint64_t memory_size;
};

}  // namespace roci::dataplane
