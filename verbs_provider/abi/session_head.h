// Messages of a session (session.h): the commands, the header of every message, and messages that
// several commands share.
#pragma once

#include "verbs_provider/abi/rings.h"

#define ROCI_ABI_MAGIC 0x69636f72u /* "roci" */
#define ROCI_ABI_MAJOR 3 /* must be equal on both sides; raised when a message's layout changes */
#define ROCI_ABI_MINOR 0 /* both sides use the lower one */

#define ROCI_ABI_DEVICE_NAME_MAX 64

// In a field that holds the handle of an optional object: there is none.
#define ROCI_ABI_NO_HANDLE (~0u)

enum roci_abi_command {
  ROCI_ABI_HELLO = 1,
  ROCI_ABI_QUERY_DEVICE,
  ROCI_ABI_QUERY_PORT,
  ROCI_ABI_ALLOC_PD,
  ROCI_ABI_DEALLOC_PD,
  ROCI_ABI_REG_MR,
  ROCI_ABI_REREG_MR,
  ROCI_ABI_DEREG_MR,
  // The program is about to make a converted range private again: from the response on, the daemon
  // reaches the range by process_vm only.
  ROCI_ABI_UNSHARE_RANGE,
  ROCI_ABI_CREATE_COMP_CHANNEL,
  ROCI_ABI_DESTROY_COMP_CHANNEL,
  ROCI_ABI_CREATE_CQ,
  ROCI_ABI_RESIZE_CQ,
  ROCI_ABI_DESTROY_CQ,
  ROCI_ABI_CREATE_QP,
  ROCI_ABI_MODIFY_QP,
  ROCI_ABI_QUERY_QP,
  ROCI_ABI_DESTROY_QP,
  ROCI_ABI_CREATE_AH,
  ROCI_ABI_DESTROY_AH,
  ROCI_ABI_ATTACH_MULTICAST,
  ROCI_ABI_DETACH_MULTICAST,
  ROCI_ABI_MODIFY_CQ,
  ROCI_ABI_ALLOC_MW,
  ROCI_ABI_DEALLOC_MW,
  ROCI_ABI_ALLOC_NULL_MR,
  ROCI_ABI_ALLOC_DM,
  ROCI_ABI_FREE_DM,
  ROCI_ABI_REG_DM_MR,
  ROCI_ABI_CREATE_FLOW,
  ROCI_ABI_DESTROY_FLOW,
  ROCI_ABI_CREATE_COUNTERS,
  ROCI_ABI_DESTROY_COUNTERS,
  ROCI_ABI_ATTACH_COUNTERS,
  ROCI_ABI_READ_COUNTERS,
  ROCI_ABI_CREATE_QUEUE_TABLE,
  ROCI_ABI_DESTROY_QUEUE_TABLE,
  ROCI_ABI_CREATE_RSS_QP,
  ROCI_ABI_CREATE_SRQ,
  ROCI_ABI_MODIFY_SRQ,
  ROCI_ABI_QUERY_SRQ,
  ROCI_ABI_DESTROY_SRQ,
  ROCI_ABI_OPEN_XRCD,
  ROCI_ABI_CLOSE_XRCD,
  ROCI_ABI_OPEN_QP,
  ROCI_ABI_CREATE_TAG_SRQ,  // tag_matching.h
  ROCI_ABI_ALLOC_LIST_MR,   // list_mr.h
  ROCI_ABI_FREE_LIST_MR,
  ROCI_ABI_NAME_CONTEXT,
  ROCI_ABI_ATTACH,
  ROCI_ABI_IMPORT_PD,
  ROCI_ABI_IMPORT_MR,
  ROCI_ABI_IMPORT_DM,
  ROCI_ABI_ALLOC_SIGNATURE_MR,  // list_mr.h
  ROCI_ABI_CHECK_SIGNATURE_MR,
  ROCI_ABI_REG_DMA_BUFFER_MR,
  ROCI_ABI_RETURN_EVENTS,
  ROCI_ABI_COMMAND_COUNT,
};

struct roci_abi_request {
  uint32_t command;  // roci_abi_command
  uint32_t size;     // of the whole message, bytes
  uint32_t serial;   // copied to the response
  uint32_t wait;     // of the response EINPROGRESS to this request; 0: it was not sent before
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_request) == 16);

struct roci_abi_response {
  uint32_t serial;
  int32_t error;  // 0 or a positive errno
  uint32_t fd_count;
  uint32_t wait;  // not 0: see ROCI_ABI_FEATURE_PATH_WAITS
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_response) == 16);

// Requests and responses with at most one handle.
struct roci_abi_handle_request {  // DEALLOC_PD, DEREG_MR, DESTROY_COMP_CHANNEL, DESTROY_AH, ...
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t reserved;
};
struct roci_abi_plain_request {  // ALLOC_PD, CREATE_COMP_CHANNEL
  struct roci_abi_request head;
};
struct roci_abi_handle_response {  // ALLOC_PD; CREATE_COMP_CHANNEL (1 descriptor: receiving end of
                                   // the event socket)
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t reserved;
};
struct roci_abi_plain_response {
  struct roci_abi_response head;
};

// DESTROY_CQ, DESTROY_QP, DESTROY_SRQ: the events that the daemon has sent for the object. The
// plugin removes those that the program has not read from the event socket (RETURN_EVENTS), and
// waits until the program has acknowledged the others.
struct roci_abi_destroy_response {
  struct roci_abi_response head;
  uint32_t comp_events;
  uint32_t async_events;
};
