// Messages between the plugin and the daemon about the connection manager, over a SOCK_SEQPACKET
// Unix socket of its own: one connection for each descriptor of the rdma_cm character device that a
// program has open. What librdmacm writes to the device (<rdma/rdma_user_cm.h>) travels as it is;
// the plugin puts answers where the command's pointers say. One request at a time, as in session.h.
#pragma once

#include "verbs_provider/abi/session.h"

// In the runtime directory, beside the sessions' socket. Its path is in the file kSocketAttribute
// of class/misc/rdma_cm in the tree that looks like sysfs.
#define ROCI_ABI_CM_SOCKET_NAME "rdma_cm.sock"

#define ROCI_ABI_CM_DATA_MAX 768
#define ROCI_ABI_CM_ANSWERS_MAX 2048

enum roci_abi_cm_command {
  // Once, first. Response: 1 descriptor, readable while an event waits, closed at the other end
  // when the daemon goes.
  ROCI_ABI_CM_OPEN = 1,
  ROCI_ABI_CM_COMMAND,
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
  uint32_t channel;  // number, for MIGRATE_ID
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_open_response) == 24);

// `data` holds in_size bytes of the command behind its rdma_ucm_cmd_hdr. SET_OPTION: `extra_size`
// bytes of the option's value follow. MIGRATE_ID: the field `fd` holds the number of the channel
// that the identifier comes from.
struct roci_abi_cm_request {
  struct roci_abi_request head;
  uint32_t command;  // RDMA_USER_CM_CMD_*
  uint32_t in_size;
  uint32_t extra_size;
  uint32_t out_size;  // room for the answer
  uint8_t data[ROCI_ABI_CM_DATA_MAX];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_request) == 32 + ROCI_ABI_CM_DATA_MAX);
// The answer, and behind it (at the next multiple of 8) what the daemon foretells: answers to
// questions that librdmacm is known to ask next, each a roci_abi_cm_foretold with its bytes, up to
// `data_size`. The message ends there.
struct roci_abi_cm_response {
  struct roci_abi_response head;
  uint32_t out_size;  // of the command's own answer
  uint32_t data_size;
  uint32_t changed_id;  // of which nothing holds that was foretold before; 0: none
  uint32_t reserved;
  uint8_t data[ROCI_ABI_CM_ANSWERS_MAX];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_response) == 32 + ROCI_ABI_CM_ANSWERS_MAX);
struct roci_abi_cm_foretold {
  uint32_t command;  // QUERY, INIT_QP_ATTR
  uint32_t id;
  uint32_t what;  // its option, its qp_state
  uint32_t size;  // of the answer that follows, a multiple of 8
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cm_foretold) == 16);
