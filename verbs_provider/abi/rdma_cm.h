// Messages between the plugin and the daemon about the connection manager, over a SOCK_SEQPACKET
// Unix socket of their own: one connection for each open descriptor of the rdma_cm character
// device. The commands that librdmacm writes to the device (<rdma/rdma_user_cm.h>) travel
// unchanged; the plugin writes the answers to the addresses that the commands contain. One request
// at a time, as in session.h.
#pragma once

#include "verbs_provider/abi/session.h"

// The socket's name in the runtime directory. In the emulated sysfs tree, the file kSocketAttribute
// of class/misc/rdma_cm holds its path.
#define ROCI_ABI_CM_SOCKET_NAME "rdma_cm.sock"

#define ROCI_ABI_CM_DATA_MAX 768
#define ROCI_ABI_CM_ANSWERS_MAX 2048

enum roci_abi_cm_command {
  // The first message of a connection, sent once. Response: 1 descriptor, a socket that holds bytes
  // while an event is pending and is at end of file when the daemon has exited.
  ROCI_ABI_CM_OPEN = 1,
  ROCI_ABI_CM_COMMAND,
};

// The events of enum rdma_cm_event_type (rdma_get_cm_event(3)) that the daemon sends. The header
// that has them, <rdma/rdma_cma.h>, conflicts with the kernel's.
enum roci_abi_cm_event {
  ROCI_ABI_CM_EVENT_ADDR_RESOLVED = 0,
  ROCI_ABI_CM_EVENT_ADDR_ERROR = 1,
  ROCI_ABI_CM_EVENT_ROUTE_RESOLVED = 2,
  ROCI_ABI_CM_EVENT_ROUTE_ERROR = 3,
  ROCI_ABI_CM_EVENT_CONNECT_REQUEST = 4,
  ROCI_ABI_CM_EVENT_CONNECT_RESPONSE = 5,
  ROCI_ABI_CM_EVENT_UNREACHABLE = 7,
  ROCI_ABI_CM_EVENT_REJECTED = 8,
  ROCI_ABI_CM_EVENT_ESTABLISHED = 9,
  ROCI_ABI_CM_EVENT_DISCONNECTED = 10,
  ROCI_ABI_CM_EVENT_DEVICE_REMOVAL = 11,
  ROCI_ABI_CM_EVENT_MULTICAST_JOIN = 12,
  ROCI_ABI_CM_EVENT_TIMEWAIT_EXIT = 15,
};

struct roci_abi_cm_open_request {
  struct roci_abi_request head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_open_request) == 24);
struct roci_abi_cm_open_response {
  struct roci_abi_response head;
  uint32_t channel;  // number of this channel; MIGRATE_ID names it
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_open_response) == 24);

// `data` holds the `in_size` bytes that follow the command's rdma_ucm_cmd_hdr. SET_OPTION:
// `extra_size` bytes of the option's value follow. MIGRATE_ID: the plugin has replaced the
// command's `fd` with the number of the channel that the identifier leaves.
struct roci_abi_cm_request {
  struct roci_abi_request head;
  uint32_t command;  // RDMA_USER_CM_CMD_*
  uint32_t in_size;
  uint32_t extra_size;
  uint32_t out_size;  // most bytes of the answer that the program takes
  uint8_t data[ROCI_ABI_CM_DATA_MAX];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_request) == 32 + ROCI_ABI_CM_DATA_MAX);
// The answer, then (from the next multiple of 8 to `data_size`) prefetched answers: answers to the
// queries that librdmacm sends next, each a roci_abi_cm_prefetched followed by its bytes. The
// message ends after `data_size` bytes of `data`.
struct roci_abi_cm_response {
  struct roci_abi_response head;
  uint32_t out_size;  // of the command's own answer
  uint32_t data_size;
  uint32_t changed_id;  // earlier prefetched answers about this identifier are invalid; 0: none
  // How many bytes the plugin has to have taken out of the channel's socket, modulo 2^32: the
  // daemon cannot, since a program that reads from the socket keeps others from it as long as it
  // likes.
  uint32_t bytes_withdrawn;
  uint32_t bytes_withdrawn_from;  // MIGRATE_ID: of the channel that the identifier has left
  uint32_t reserved;
  uint8_t data[ROCI_ABI_CM_ANSWERS_MAX];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_response) == 40 + ROCI_ABI_CM_ANSWERS_MAX);
struct roci_abi_cm_prefetched {
  uint32_t command;  // QUERY, INIT_QP_ATTR
  uint32_t id;
  uint32_t what;  // QUERY: the option; INIT_QP_ATTR: qp_state
  uint32_t size;  // of the answer that follows, a multiple of 8
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_prefetched) == 16);
