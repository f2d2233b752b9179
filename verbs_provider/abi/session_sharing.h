// Messages of a session (session.h): contexts that several processes share.
#pragma once

#include "verbs_provider/abi/session_device.h"

// NAME_CONTEXT: the number of the program's command descriptor (struct ibv_context::cmd_fd), by
// whose open file other processes name this session's context. Response: plain.
struct roci_abi_name_context_request {
  struct roci_abi_request head;
  int32_t fd;
  uint32_t reserved;
};
// ATTACH: in the place of HELLO, with the command descriptor of a context that another process of
// the same user has open (ibv_import_device(3), or a child after fork). ENODEV: nobody has. The new
// session shares the other's keys, and may use its protection domains and device memory by their
// handles; what it makes is its own, with handles that the others do not give. Commands that
// destroy what is another's succeed and do nothing.
struct roci_abi_attach_request {
  struct roci_abi_request head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
};
struct roci_abi_attach_response {  // descriptors as of HELLO
  union {
    struct roci_abi_response head;
    struct roci_abi_hello_response hello;
  };
  char device[ROCI_ABI_DEVICE_NAME_MAX];  // NUL-terminated
};
// IMPORT_PD, IMPORT_MR, IMPORT_DM: objects of the session or of one that it shares a context with.
// ENOENT: there is none of that handle. IMPORT_PD's response is plain.
struct roci_abi_import_mr_response {
  struct roci_abi_response head;
  uint32_t lkey;
  uint32_t rkey;
  uint64_t length;
};
struct roci_abi_import_dm_response {  // 1 descriptor: the memfd
  struct roci_abi_response head;
  uint64_t length;       // bytes, as asked for
  uint64_t memory_size;  // of the memfd
};
