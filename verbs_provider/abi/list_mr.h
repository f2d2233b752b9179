// List regions (fast registration) and signature regions: the messages that allocate and free them,
// and the list that the program fills in before it posts the request. Layout rules as in rings.h.
#pragma once

#include "verbs_provider/abi/session.h"

#define ROCI_ABI_MAX_LIST_RUNS 512

// In an entry with ROCI_ABI_WR_REG_LIST, `remote_va` is the first address of the region.

// The memfd of a list region is an array of roci_abi_sge: runs of ordinary regions. The program
// does not write to it between the post of a request and its completion.
struct roci_abi_alloc_list_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t max_runs;  // 1 .. ROCI_ABI_MAX_LIST_RUNS
};
struct roci_abi_alloc_list_mr_response {  // 1 descriptor
  struct roci_abi_response head;
  uint32_t handle;  // the upper 24 bits of each of its keys
  uint32_t key;     // invalid before the first registration
  uint64_t memory_size;
};

// ---- Signature regions (T10 protection information)
//
// The memfd begins with a roci_abi_signature, followed by `max_runs` roci_abi_sge for the runs of
// data and `max_protection_runs` for those of protection information. A signature region is
// registered by the same send opcode as a list.

// Bytes of data that 8 bytes of protection information protect.
#define ROCI_ABI_SIGNATURE_BLOCK_SIZES \
  { 512, 520, 4048, 4096, 4160 }

enum roci_abi_signature_guard {
  ROCI_ABI_SIGNATURE_CRC = 0,
  ROCI_ABI_SIGNATURE_CHECKSUM = 1,
};

#define ROCI_ABI_SIGNATURE_REF_COUNTS 1u  // the reference tag grows by 1 with each block
#define ROCI_ABI_SIGNATURE_APP_ESCAPE 2u  // no checks where the application tag is 0xFFFF
// No checks where the application tag is 0xFFFF and the reference tag 0xFFFFFFFF. Excludes
// ROCI_ABI_SIGNATURE_APP_ESCAPE.
#define ROCI_ABI_SIGNATURE_APP_REF_ESCAPE 4u

#define ROCI_ABI_SIGNATURE_CHECK_GUARD 0xC0u
#define ROCI_ABI_SIGNATURE_CHECK_APP_TAG 0x30u
#define ROCI_ABI_SIGNATURE_CHECK_REF_TAG 0x0Fu

struct roci_abi_signature_domain {
  uint8_t is_present;  // 0: no protection information; the other fields are ignored
  uint8_t guard;       // roci_abi_signature_guard
  uint16_t seed;
  uint16_t app_tag;
  uint16_t app_tag_mask;
  uint32_t ref_tag;
  uint32_t flags;  // ROCI_ABI_SIGNATURE_*
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_signature_domain) == 16);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_signature_domain, ref_tag) == 8);

struct roci_abi_signature {
  struct roci_abi_signature_domain memory;
  struct roci_abi_signature_domain wire;
  uint32_t block_size;
  uint32_t checks;           // ROCI_ABI_SIGNATURE_CHECK_*
  uint32_t protection_runs;  // number of runs of protection information
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_signature) == 48);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_signature, block_size) == 32);

// ALLOC_SIGNATURE_MR. The response is that of ALLOC_LIST_MR; FREE_LIST_MR frees the region.
struct roci_abi_alloc_signature_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t max_runs;             // 1 .. ROCI_ABI_MAX_LIST_RUNS
  uint32_t max_protection_runs;  // 0 .. ROCI_ABI_MAX_LIST_RUNS
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_alloc_signature_mr_request) == 32);

enum roci_abi_signature_fault {
  ROCI_ABI_SIGNATURE_OK = 0,
  ROCI_ABI_SIGNATURE_BAD_GUARD = 1,
  ROCI_ABI_SIGNATURE_BAD_REF_TAG = 2,
  ROCI_ABI_SIGNATURE_BAD_APP_TAG = 3,
};

// CHECK_SIGNATURE_MR (a handle request): the first check that has failed since the registration or
// the last CHECK_SIGNATURE_MR.
struct roci_abi_check_signature_mr_response {
  struct roci_abi_response head;
  uint32_t fault;  // roci_abi_signature_fault
  uint32_t key;
  uint32_t expected;
  uint32_t actual;
  uint64_t offset;  // of the block in the region
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_check_signature_mr_response) == 40);
