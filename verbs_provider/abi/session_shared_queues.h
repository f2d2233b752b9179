// Messages of a session (session.h): shared receive queues and XRC domains.
#pragma once

#include "verbs_provider/abi/session_head.h"

// Values of enum ibv_srq_type.
enum roci_abi_srq_type {
  ROCI_ABI_SRQ_BASIC = 0,
  ROCI_ABI_SRQ_XRC = 1,
};
struct roci_abi_create_srq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // what events carry
  uint32_t pd;
  uint32_t type;  // roci_abi_srq_type
  uint32_t xrcd;  // XRC only
  uint32_t cq;    // XRC only
  uint32_t max_wr;
  uint32_t max_sge;
};
// The layout of the memfd. At creation all slots are free and the ring begins at index 0.
struct roci_abi_srq_layout {
  uint32_t max_wr;         // granted: slots
  uint32_t max_sge;        // granted
  uint32_t ring_capacity;  // a power of two >= max_wr
  uint32_t stride;         // of slots, bytes
  uint32_t ring_offset;
  uint32_t slots_offset;
  uint64_t memory_size;
};
struct roci_abi_create_srq_response {  // 1 descriptor: the memfd
  struct roci_abi_response head;
  uint32_t handle;  // session-local, never 0, < ROCI_ABI_MAX_SRQ_HANDLES
  uint32_t srqn;    // XRC only, else 0
  struct roci_abi_srq_layout layout;
};
#define ROCI_ABI_SRQ_MAX_WR 1u /* enum ibv_srq_attr_mask */
#define ROCI_ABI_SRQ_LIMIT 2u
// The plugin posts nothing while it waits for the response to a resize. Slot numbers and the ring's
// index stay the same. A queue that grows moves to new memory; a queue that shrinks (never below
// the number of posted entries) keeps its memory.
struct roci_abi_modify_srq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t mask;
  uint32_t max_wr;
  uint32_t limit;
};
struct roci_abi_modify_srq_response {  // a queue that has grown: 1 descriptor, the memfd
  struct roci_abi_response head;
  struct roci_abi_srq_layout layout;
};
struct roci_abi_query_srq_response {  // request: roci_abi_handle_request
  struct roci_abi_response head;
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t limit;  // 0: not armed, or already fired
  uint32_t reserved;
};

// OPEN_XRCD (ibv_open_xrcd(3)). With `has_file` the message has one descriptor, whose inode
// identifies the domain.
#define ROCI_ABI_XRCD_CREATE 1u
#define ROCI_ABI_XRCD_EXCLUSIVE 2u
struct roci_abi_open_xrcd_request {
  struct roci_abi_request head;
  uint32_t has_file;
  uint32_t flags;
};  // response: roci_abi_handle_response
