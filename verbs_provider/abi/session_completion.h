// Messages of a session (session.h): completion queues, and the contents of event pipes.
#pragma once

#include "verbs_provider/abi/session_head.h"

// Completions that do not fit in the ring are dropped, and the queue stays usable
// (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
#define ROCI_ABI_CQ_IGNORE_OVERRUN 1u
struct roci_abi_create_cq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // copied to events, never interpreted
  uint32_t entries;      // requested, >= 1
  uint32_t channel;      // handle, or ROCI_ABI_NO_HANDLE
  uint32_t comp_vector;
  uint32_t flags;  // ROCI_ABI_CQ_*
};
struct roci_abi_create_cq_response {  // 1 descriptor: the CQ's memfd
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t capacity;  // entries in the ring, a power of two
  uint32_t entries;   // granted, >= requested
  uint32_t entries_offset;
  uint64_t memory_size;
};
// RESIZE_CQ: the daemon copies the entries from the request's consumer index on to a new ring, with
// generations as in an empty ring of the new size, and continues there. The program switches to the
// new ring when it gets the response.
struct roci_abi_resize_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t entries;
  uint32_t consumer;
  uint32_t reserved;
};
// 1 descriptor: the new memfd. Index 0 is the oldest entry that was not consumed.
struct roci_abi_resize_cq_response {
  struct roci_abi_response head;
  uint32_t capacity;
  uint32_t entries;
  uint32_t entries_offset;
  uint32_t reserved;
  uint64_t memory_size;
};
// MODIFY_CQ: moderation of completion events (ibv_modify_cq(3)). An event is sent after `count`
// completions or `period_us` after the first of them, whichever is earlier. 0 disables that
// condition; if both are 0, every event is sent at once. Response: plain.
struct roci_abi_modify_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t count;
  uint32_t period_us;
  uint32_t reserved;
};

// The contents of the event pipes: the same bytes that the kernel's uverbs descriptors return,
// because libibverbs reads them.
struct roci_abi_async_event {
  uint64_t element;  // user_handle of the QP, CQ or SRQ, or the port number
  uint32_t type;     // enum ibv_event_type
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_async_event) == 16);
struct roci_abi_comp_event {
  uint64_t user_handle;  // of the CQ
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_comp_event) == 8);
