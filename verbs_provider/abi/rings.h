// Shared-memory layout between the provider plugin and the daemon: send and receive queues,
// completion queues and the doorbell page. Plain C layout; everything is little-endian host order
// unless a field says otherwise.
//
// Trust: the daemon validates everything that it reads here. Sizes, strides and its own indices
// live in daemon memory, so that a program that writes garbage here harms only itself.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ROCI_ABI_ASSERT(condition) static_assert(condition, #condition)
#else
#define ROCI_ABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define ROCI_ABI_CACHE_LINE 64
#define ROCI_ABI_MAX_SGE 32
#define ROCI_ABI_MAX_MESSAGE_BYTES (1u << 31) /* IBTA vol 1, 9.4 */

// ---- Work queues
//
// Both queues of a QP live in one memfd, at the offsets that the create response names. Indices are
// free-running 32-bit counters; slot = index & (capacity - 1), capacities are powers of two.
//
// A program may skip indices of a send queue that is empty (all entries are completed), so that a
// rarely used queue reuses the same few slots, which are in the caches. Before `producer`, the
// program stores the index of the next entry to `start` and adds 1 to `restarts`
// (ROCI_ABI_FEATURE_RESTART).
//
// A transition of the QP to RESET discards the posted entries: the daemon stores 0 to both
// `producer`s before it answers, and both sides count from 0 again.

struct roci_abi_queue {
  // Written by the program: entries posted so far. Store with release order after the entry is
  // complete.
  uint32_t producer;
  uint32_t start;     // there are no entries from the old `producer` up to this index
  uint32_t restarts;  // how often `start` was stored
  uint32_t reserved0[13];
  // Written by the daemon: 1 = the program must ring the doorbell after it has stored `producer`,
  // followed by a full fence. 0 = the daemon polls `producer`.
  uint32_t armed;
  // Written by the daemon, a hint for tools: entries consumed so far.
  uint32_t consumer;
  uint32_t reserved1[14];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_queue) == 128);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_queue, restarts) == 8);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_queue, armed) == 64);

struct roci_abi_sge {
  uint64_t va;
  uint32_t length;  // bytes
  uint32_t lkey;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_sge) == 16);

// Values of enum ibv_wr_opcode (ibv_post_send(3)), as far as verbs have the operation.
// send_opcodes.h has the operations of each type of queue pair.
enum roci_abi_send_opcode {
  ROCI_ABI_WR_RDMA_WRITE = 0,
  ROCI_ABI_WR_RDMA_WRITE_WITH_IMM = 1,
  ROCI_ABI_WR_SEND = 2,
  ROCI_ABI_WR_SEND_WITH_IMM = 3,
  ROCI_ABI_WR_RDMA_READ = 4,
  ROCI_ABI_WR_ATOMIC_CMP_AND_SWP = 5,
  ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD = 6,
  ROCI_ABI_WR_LOCAL_INV = 7,
  ROCI_ABI_WR_BIND_MW = 8,
  ROCI_ABI_WR_SEND_WITH_INV = 9,
  ROCI_ABI_WR_TSO = 10,  // not supported
  ROCI_ABI_WR_FLUSH = 14,
  ROCI_ABI_WR_ATOMIC_WRITE = 15,
  // Registers a list region (list_mr.h). Not in verbs.
  ROCI_ABI_WR_REG_LIST = 16,
};

enum roci_abi_send_flags {
  ROCI_ABI_SEND_FENCE = 1 << 0,
  ROCI_ABI_SEND_SIGNALED = 1 << 1,
  ROCI_ABI_SEND_SOLICITED = 1 << 2,
  // `inline_length` bytes of data follow the header instead of SGEs. The provider also sets it for
  // small SENDs and WRITEs for which the program did not ask for inline data.
  ROCI_ABI_SEND_INLINE = 1 << 3,
  // Raw packets: the daemon fills in the checksums of the IPv4 header and of TCP or UDP
  // (ROCI_ABI_FEATURE_IP_CHECKSUM).
  ROCI_ABI_SEND_IP_CHECKSUM = 1 << 4,
};

// One send queue slot: this header, then `num_sge` SGEs or `inline_length` bytes. The stride is
// fixed per QP, a multiple of 64 and at least 128.
struct roci_abi_send_wqe {
  uint64_t wr_id;
  uint8_t opcode;  // roci_abi_send_opcode
  uint8_t flags;   // roci_abi_send_flags
  uint8_t num_sge;
  uint8_t reserved0;
  union {
    uint32_t immediate;       // network byte order
    uint32_t invalidate_key;  // SEND_WITH_INV, LOCAL_INV: the key to invalidate
  };
  uint32_t inline_length;
  uint32_t rkey;
  uint64_t remote_va;
  union {
    struct {
      uint64_t compare_add;
      uint64_t swap;
      uint64_t reserved;
    } atomic;
    struct {
      uint32_t address_handle;
      uint32_t remote_qpn;
      uint32_t remote_qkey;
      uint32_t reserved[3];
    } ud;
    struct {
      uint64_t length;  // bytes from remote_va on
      uint32_t window;  // handle
      uint32_t access;  // enum ibv_access_flags
      uint32_t region_key;
      uint32_t new_key;
    } bind;
    struct {
      uint64_t runs;    // in the list's memory
      uint32_t list;    // handle
      uint32_t access;  // enum ibv_access_flags
      uint32_t reserved;
      uint32_t new_key;
    } list;  // see list_mr.h
    struct {
      uint64_t length;  // bytes from remote_va on
      uint32_t type;    // 1: global visibility, 2: persistence, 3: both
      uint32_t level;   // 0: the range, 1: the whole memory region of `rkey`
      uint64_t reserved;
    } flush;
  } u;
  uint32_t remote_srqn;  // XRC
  uint32_t reserved1;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_send_wqe) == 64);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_send_wqe, remote_va) == 24);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_send_wqe, u) == 32);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_send_wqe, u.list.new_key) == 52);

// One receive queue slot: this header, then `num_sge` SGEs. The stride is fixed per QP, a multiple
// of 32.
struct roci_abi_recv_wqe {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_recv_wqe) == 16);

// ---- Shared receive queues
//
// The QPs of the session consume entries in the order of posting, but the entries complete in any
// order. So the program allocates slots from its list of free ones, and a ring names the slots in
// the order of posting.

#define ROCI_ABI_MAX_SRQ_HANDLES 65536

// Header of a shared receive queue's memfd. The ring of 32-bit slot numbers and the slots (laid out
// as in a receive queue) follow at the offsets named in the create response. The index into the
// ring is free-running; position = index & (ring capacity - 1).
struct roci_abi_srq {
  // Written by the program: entries posted so far. Store with release order after slot and ring are
  // complete.
  uint32_t producer;
  uint32_t reserved0[15];
  // Written by the daemon, a hint for tools: entries consumed so far.
  uint32_t consumer;
  uint32_t reserved1[15];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_srq) == 128);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_srq, consumer) == 64);

// ---- Completion queues

enum roci_abi_cq_arm {
  ROCI_ABI_CQ_ARM_NONE = 0,
  ROCI_ABI_CQ_ARM_SOLICITED = 1,
  ROCI_ABI_CQ_ARM_ANY = 2,
};

// Header of a CQ's memfd; the entries follow at the offset named in the create response.
struct roci_abi_cq {
  // Written by the program: entries consumed so far (release order).
  uint32_t consumer;
  uint32_t reserved0[15];
  // Written by the program (roci_abi_cq_arm). The daemon exchanges it with NONE when it sends the
  // event.
  uint32_t arm;
  uint32_t reserved1[15];
  // Written by the daemon: entries written so far. A hint: `generation` says whether an entry is
  // valid.
  uint32_t producer;
  uint32_t overflowed;  // 1 after IBV_EVENT_CQ_ERR
  uint32_t reserved2[14];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cq) == 192);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cq, arm) == 64);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cq, producer) == 128);

enum roci_abi_cqe_flags {
  ROCI_ABI_CQE_GRH = 1 << 0,               // as IBV_WC_GRH
  ROCI_ABI_CQE_WITH_IMM = 1 << 1,          // as IBV_WC_WITH_IMM
  ROCI_ABI_CQE_IP_CHECKSUM_OK = 1 << 2,    // as IBV_WC_IP_CSUM_OK
  ROCI_ABI_CQE_WITH_INV = 1 << 3,          // as IBV_WC_WITH_INV
  ROCI_ABI_CQE_TAG_SYNC_REQUEST = 1 << 4,  // as IBV_WC_TM_SYNC_REQ
  ROCI_ABI_CQE_TAG_MATCH = 1 << 5,         // as IBV_WC_TM_MATCH; tag: tag_high, tag_low
  ROCI_ABI_CQE_TAG_DATA_VALID = 1 << 6,    // as IBV_WC_TM_DATA_VALID
  ROCI_ABI_CQE_SEND = 1 << 8,              // completes a send queue entry; else a receive
  ROCI_ABI_CQE_SRQ = 1 << 9,               // completes a receive of a shared receive queue
  ROCI_ABI_CQE_TAG = 1 << 10,              // completes a tag operation, not a work queue entry
};

// Network fields of a datagram's completion.
struct roci_abi_datagram_network {
  uint8_t header;  // kind of network header, as adapters show it in ibv_wc.sl: 0x9 IPv6, 0xA IPv4
  uint8_t reserved;
  uint16_t vlan_tci;  // 0: no VLAN tag
};

// One completion, one cache line. The entry at free-running index i of a CQ with `capacity` entries
// (a power of two) is valid if generation == (uint32_t)(i / capacity + 1). The daemon stores
// `generation` last, with release order.
struct roci_abi_cqe {
  uint64_t wr_id;
  uint8_t status;  // enum ibv_wc_status
  uint8_t opcode;  // enum ibv_wc_opcode
  uint16_t flags;  // roci_abi_cqe_flags
  uint32_t vendor_error;
  uint32_t byte_length;
  union {
    uint32_t immediate;        // with ROCI_ABI_CQE_WITH_IMM: network byte order
    uint32_t invalidated_key;  // with ROCI_ABI_CQE_WITH_INV: the invalidated R_Key
  };
  uint32_t qpn;
  // Session-local handle of the QP; with ROCI_ABI_CQE_SRQ or ROCI_ABI_CQE_TAG that of the shared
  // receive queue.
  uint32_t qp_handle;
  uint32_t source_qpn;
  union {
    // Free-running index of the work queue entry: it and all older entries may be overwritten. With
    // ROCI_ABI_CQE_SRQ: number of the slot, and only that slot may be overwritten.
    uint32_t slot;
    uint32_t tag_low;  // with ROCI_ABI_CQE_TAG_MATCH: bits 0 to 31 of the tag
  };
  uint64_t timestamp_ns;
  uint8_t sl;
  uint8_t reserved0;
  uint16_t pkey_index;
  union {
    uint32_t flow_tag;                          // raw packet receives: of the rule
    uint32_t tag_high;                          // with ROCI_ABI_CQE_TAG_MATCH: bits 32 to 63
    struct roci_abi_datagram_network datagram;  // with ROCI_ABI_CQE_GRH
  };
  uint32_t generation;
  uint32_t tag_context;  // with ROCI_ABI_CQE_TAG_MATCH: the sender's application context
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_cqe) == 64);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cqe, slot) == 36);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cqe, flow_tag) == 52);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cqe, timestamp_ns) == 40);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_cqe, generation) == 56);

// ---- Doorbell page
//
// One per session: a bit per QP handle, in a bitmap of three levels, so that the daemon finds a few
// doorbells among tens of thousands of queue pairs by reading one word. The program sets bits from
// the bottom up (levels 0, 1, 2); the daemon exchanges words with 0 from the top down.

#define ROCI_ABI_MAX_QP_HANDLES 65536
#define ROCI_ABI_DOORBELL_WORD_BITS 64

struct roci_abi_doorbells {
  // Written by the daemon: 1 = the session's lcore sleeps; the program sets the bits, then a full
  // fence, then writes 8 bytes to the wake eventfd.
  uint32_t sleeping;
  // Written by the daemon: changes at least every 250 us while the session's lcore runs. 0: the
  // daemon does not report it.
  uint32_t rounds;
  // Written by the daemon: changes when the path of an address vector may have changed (addresses,
  // routes, MACs of neighbours), before the daemon announces the change. 0: the daemon does not
  // report it.
  uint32_t paths;
  uint32_t reserved0[13];
  uint64_t level2;  // bit i: level1[i] != 0
  // Written by the program, with release order: polls of any completion queue of the session that
  // found nothing. Only with ROCI_ABI_FEATURE_POLL_COUNT.
  uint32_t empty_polls;
  uint32_t reserved1[13];
  uint64_t level1[ROCI_ABI_MAX_QP_HANDLES / 64 / 64];
  uint64_t reserved2[8 - (ROCI_ABI_MAX_QP_HANDLES / 64 / 64) % 8];
  uint64_t level0[ROCI_ABI_MAX_QP_HANDLES / 64];
};
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, rounds) == 4);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, paths) == 8);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, level2) == 64);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, empty_polls) == 72);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, level1) == 128);
ROCI_ABI_ASSERT(offsetof(struct roci_abi_doorbells, level0) % 64 == 0);
