// Tag matching: the ring of list operations (ibv_post_srq_ops(3)) that a program and the daemon
// share, and the message that makes a tag-matching shared receive queue. As rings.h otherwise.
#pragma once

#include "verbs_provider/abi/session.h"

#define ROCI_ABI_MAX_TAGS 1024      /* of one queue */
#define ROCI_ABI_MAX_TAG_OPS 1024   /* of one queue, posted and not taken */
#define ROCI_ABI_MAX_TAG_SGE 8      /* of one tagged buffer */
#define ROCI_ABI_MAX_RNDV_HEADER 64 /* bytes of a rendezvous request that is matched */

// Values of enum ibv_ops_wr_opcode.
enum roci_abi_tag_opcode {
  ROCI_ABI_TAG_ADD = 0,
  ROCI_ABI_TAG_DEL = 1,
  ROCI_ABI_TAG_SYNC = 2,
};
// enum ibv_ops_flags.
#define ROCI_ABI_TAG_SIGNALED 1u
#define ROCI_ABI_TAG_WITH_COUNT 2u /* IBV_OPS_TM_SYNC: `unexpected_count` means something */

// Header of the memfd. Operations follow at `ops_offset`, and at `freed_offset` a ring of 32-bit
// slot numbers: places in the list that are free again, in any order. All slots are free at first,
// and are the app's to choose. Indices run freely; place = index & (capacity - 1).
struct roci_abi_tag_queue {
  // Written by the app: operations posted so far (release order). Then it rings the doorbell.
  uint32_t producer;
  uint32_t reserved0[15];
  // Written by the daemon (release order): operations taken, whose places may be written again;
  // and slot numbers put into the ring.
  uint32_t consumer;
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
  // ADD, DEL: number of the slot | turn << 16. The app counts a slot's turns, so that an old handle
  // means nothing new.
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
  uint64_t user_handle;  // what events carry
  uint32_t pd;
  uint32_t cq;  // where everything completes
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t max_tags;  // 1 .. ROCI_ABI_MAX_TAGS
  uint32_t max_ops;   // 1 .. ROCI_ABI_MAX_TAG_OPS
};
struct roci_abi_create_tag_srq_response {  // 2 descriptors: the memfd of a shared receive queue,
                                           // and that of the operations
  struct roci_abi_response head;
  uint32_t handle;    // as of CREATE_SRQ, and destroyed like it
  uint32_t doorbell;  // what to ring for operations, as if it were a queue pair's handle
  struct roci_abi_srq_layout layout;
  uint32_t ops_capacity;  // a power of two >= max_ops
  uint32_t ops_offset;
  uint32_t freed_capacity;  // a power of two >= max_tags
  uint32_t freed_offset;
  uint64_t ops_memory_size;
};
