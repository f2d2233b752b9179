// Tag matching: the shared ring of tag list operations (ibv_post_srq_ops(3)), and the message that
// creates a tag-matching shared receive queue. Layout rules as in rings.h.
#pragma once

#include "verbs_provider/abi/session.h"

#define ROCI_ABI_MAX_TAGS 1024      /* of one queue */
#define ROCI_ABI_MAX_TAG_OPS 1024   /* of one queue, posted and not consumed */
#define ROCI_ABI_MAX_TAG_SGE 8      /* of one tagged buffer */
#define ROCI_ABI_MAX_RNDV_HEADER 64 /* bytes of the header of a rendezvous request */

// Values of enum ibv_ops_wr_opcode.
enum roci_abi_tag_opcode {
  ROCI_ABI_TAG_ADD = 0,
  ROCI_ABI_TAG_DEL = 1,
  ROCI_ABI_TAG_SYNC = 2,
};
// enum ibv_ops_flags.
#define ROCI_ABI_TAG_SIGNALED 1u
#define ROCI_ABI_TAG_WITH_COUNT 2u /* IBV_OPS_TM_SYNC: `unexpected_count` is valid */

// Header of the memfd. The ring of operations follows at `ops_offset`, and at `freed_offset` a ring
// of 32-bit numbers: the slots of the tag list that have become free, in any order. At first all
// slots are free. The program chooses the slot of a tag. Indices are free-running; position = index
// & (capacity - 1).
struct roci_abi_tag_queue {
  // Written by the program: operations posted so far (release order). Then the program rings the
  // doorbell.
  uint32_t producer;
  uint32_t reserved0[15];
  // Written by the daemon (release order): operations consumed so far.
  uint32_t consumer;
  // Written by the daemon (release order): slot numbers written to the ring at `freed_offset` so
  // far.
  uint32_t freed;
  uint32_t reserved1[14];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_tag_queue) == 128);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_tag_queue, consumer) == 64);

struct roci_abi_tag_op {
  uint64_t wr_id;
  uint64_t recv_wr_id;  // ADD
  uint64_t tag;         // ADD
  uint64_t mask;        // ADD
  // ADD, DEL: number of the slot | generation << 16. The program increments a slot's generation
  // with each use, so that an old handle does not name a new tag.
  uint32_t handle;
  uint32_t unexpected_count;
  uint8_t opcode;   // roci_abi_tag_opcode
  uint8_t flags;    // ROCI_ABI_TAG_SIGNALED, ...
  uint8_t num_sge;  // ADD
  uint8_t reserved0[5];
  uint64_t reserved1[2];
  struct roci_abi_sge sges[ROCI_ABI_MAX_TAG_SGE];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_tag_op) == 192);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_tag_op, sges) == 64);

struct roci_abi_create_tag_srq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // copied to events
  uint32_t pd;
  uint32_t cq;  // of receives and tag operations
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t max_tags;  // 1 .. ROCI_ABI_MAX_TAGS
  uint32_t max_ops;   // 1 .. ROCI_ABI_MAX_TAG_OPS
};
// 2 descriptors: the memfd of a shared receive queue, and that of the operations.
struct roci_abi_create_tag_srq_response {
  struct roci_abi_response head;
  uint32_t handle;    // as of CREATE_SRQ; DESTROY_SRQ destroys the queue
  uint32_t doorbell;  // number of the doorbell bit for operations, in the place of a QP handle
  struct roci_abi_srq_layout layout;
  uint32_t ops_capacity;  // a power of two >= max_ops
  uint32_t ops_offset;
  uint32_t freed_capacity;  // a power of two >= max_tags
  uint32_t freed_offset;
  uint64_t ops_memory_size;
};
