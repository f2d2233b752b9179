// Messages of a session (session.h): completion queues, and the contents of event sockets.
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

// The contents of the event sockets (SOCK_SEQPACKET), one event per message: the same bytes that
// the kernel's uverbs descriptors return, because libibverbs reads them.
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

// RETURN_EVENTS: events of other objects that the plugin has received while it removed those of a
// destroyed one. The daemon, which never receives from the program's end, sends them again,
// asynchronous ones before all later ones. Response: plain.
#define ROCI_ABI_MAX_RETURNED_EVENTS 32
// Asynchronous events only: the daemon sends none until the next request without this flag.
#define ROCI_ABI_RETURN_HOLD 1u
struct roci_abi_return_events_request {
  struct roci_abi_request head;
  uint32_t channel;  // handle; ROCI_ABI_NO_HANDLE: asynchronous events
  uint32_t count;
  uint32_t flags;  // ROCI_ABI_RETURN_*
  uint32_t reserved;
  // Completion events: `element` is the handle of the CQ, instead of its user_handle.
  struct roci_abi_async_event events[ROCI_ABI_MAX_RETURNED_EVENTS];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_return_events_request) ==
                32 + 16 * ROCI_ABI_MAX_RETURNED_EVENTS);
