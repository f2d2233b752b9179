// Messages of a session (session.h): contexts that several processes share.
#pragma once

#include "verbs_provider/abi/session_device.h"

// NAME_CONTEXT: `fd` is the number of the program's command descriptor (ibv_context::cmd_fd). Other
// processes identify this session's context by that descriptor's open file. Response: plain.
struct roci_abi_name_context_request {
  struct roci_abi_request head;
  int32_t fd;
  uint32_t reserved;
};
// ATTACH: replaces HELLO for a process that shares the context of another process of the same user
// (ibv_import_device(3), or a child after fork). The message carries the context's command
// descriptor. ENODEV: no session has that context. The new session shares the other sessions' keys,
// and may use their protection domains and device memory by handle. It owns the objects that it
// creates; handles are unique among the sessions of a context. Commands that destroy another
// session's object succeed and do nothing.
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
// IMPORT_PD, IMPORT_MR, IMPORT_DM: imports an object of this session or of one that shares its
// context. ENOENT: no object has that handle. IMPORT_PD's response is plain.
struct roci_abi_import_mr_response {
  struct roci_abi_response head;
  uint32_t lkey;
  uint32_t rkey;
  uint64_t length;
};
struct roci_abi_import_dm_response {  // 1 descriptor: the memfd
  struct roci_abi_response head;
  uint64_t length;       // bytes, as allocated by the program
  uint64_t memory_size;  // of the memfd, bytes
};
