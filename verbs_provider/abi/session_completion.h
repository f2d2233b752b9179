// Messages of a session (session.h): completion queues, and what comes by event pipes.
#pragma once

#include "verbs_provider/abi/session_head.h"

// What does not fit in the ring is lost without further ado, and the queue lives on
// (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
#define ROCI_ABI_CQ_IGNORE_OVERRUN 1u
struct roci_abi_create_cq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // what events carry; never interpreted
  uint32_t entries;      // asked for, >= 1
  uint32_t channel;      // handle, or ~0
  uint32_t comp_vector;
  uint32_t flags;  // ROCI_ABI_CQ_*
};
struct roci_abi_create_cq_response {  // 1 descriptor: the CQ's memfd
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t capacity;  // entries in the ring, a power of two
  uint32_t entries;   // what the app may rely on (>= asked for)
  uint32_t entries_offset;
  uint64_t memory_size;
};
// RESIZE_CQ: the daemon copies entries that were not consumed to the new ring and continues there,
// generations as for an empty ring of the new size; the app switches when the response comes.
// Request names the app's consumer index.
struct roci_abi_resize_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t entries;
  uint32_t consumer;
  uint32_t reserved;
};
struct roci_abi_resize_cq_response {  // 1 descriptor: the new memfd. Index 0 is the oldest entry
                                      // not consumed.
  struct roci_abi_response head;
  uint32_t capacity;
  uint32_t entries;
  uint32_t entries_offset;
  uint32_t reserved;
  uint64_t memory_size;
};
// MODIFY_CQ: how long completion events may be held back (ibv_modify_cq(3)): until `count`
// completions have come, or `period_us` has passed since the first of them, whichever is first; 0
// leaves that condition out, and both 0 send every event at once. Response: plain.
struct roci_abi_modify_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t count;
  uint32_t period_us;
  uint32_t reserved;
};

// What the event pipes carry: the same bytes that the kernel's uverbs descriptors do, since
// libibverbs reads them.
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
