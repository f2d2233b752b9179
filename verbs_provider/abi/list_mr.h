// List regions (fast registration): the messages that make and free them, and the list that the
// program fills in before it posts the request. As rings.h otherwise.
#pragma once

#include "verbs_provider/abi/session.h"

#define ROCI_ABI_MAX_LIST_RUNS 512

// An entry of a send queue beside those that verbs name. `remote_va` is the first address of the
// region, `u.bind.access` and `u.bind.new_key` are what they say, and `u.bind.length` is the number
// of runs in the list's memory.
#define ROCI_ABI_WR_REG_LIST 16

// The memfd of a list region is an array of roci_abi_sge: runs of ordinary regions, one behind the
// other. The app leaves it alone from the post of a request on until that completes.
struct roci_abi_alloc_list_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t max_runs;  // 1 .. ROCI_ABI_MAX_LIST_RUNS
};
struct roci_abi_alloc_list_mr_response {  // 1 descriptor
  struct roci_abi_response head;
  uint32_t handle;  // the upper 24 bits of each of its keys
  uint32_t key;     // means nothing before a registration
  uint64_t memory_size;
};
