// Messages of a session (session.h): queue pairs, address handles and multicast.
#pragma once

#include "verbs_provider/abi/session_head.h"

// Bits of roci_abi_create_qp_request::flags; values are those of enum ibv_qp_create_flags.
#define ROCI_ABI_QP_BLOCK_SELF_MULTICAST (1u << 1)
// Not in ibv_qp_create_flags: a work queue (ibv_create_wq(3)), which is a raw packet queue pair
// that receives only for RSS queue pairs. Its states are RESET, RTR (ready) and ERR.
#define ROCI_ABI_QP_WORK_QUEUE (1u << 31)

struct roci_abi_create_qp_request {
  struct roci_abi_request head;
  uint64_t user_handle;
  uint32_t pd;       // XRC_RECV: handle of the XRC domain instead
  uint32_t send_cq;  // XRC_RECV: ignored
  uint32_t recv_cq;  // XRC_SEND, XRC_RECV: ignored
  uint32_t srq;      // or ROCI_ABI_NO_HANDLE, as for the XRC types
  uint32_t qp_type;  // enum ibv_qp_type
  uint32_t sq_sig_all;
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;
  uint32_t flags;
};
// 1 descriptor: the memfd with both queues. XRC_RECV: no descriptor, no queues.
struct roci_abi_create_qp_response {
  struct roci_abi_response head;
  uint32_t handle;  // session-local, < ROCI_ABI_MAX_QP_HANDLES: number of the doorbell bit
  uint32_t qpn;
  uint32_t max_send_wr;  // granted limits, >= asked for
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;
  uint32_t send_capacity;  // slots, a power of two >= max_send_wr
  uint32_t recv_capacity;
  uint32_t send_stride;  // bytes
  uint32_t recv_stride;
  uint32_t send_queue_offset;  // of roci_abi_queue
  uint32_t recv_queue_offset;
  uint32_t send_slots_offset;
  uint32_t recv_slots_offset;
  uint32_t
      lacking_opcodes;  // operations that the device lacks (send_opcodes.h); 0 by older daemons
  uint64_t memory_size;
};

struct roci_abi_ah_attr {
  uint8_t dgid[16];
  uint32_t flow_label;
  uint16_t dlid;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port;
  uint8_t reserved[2];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_ah_attr) == 32);

// Options of ibv_ece (ibv_set_ece(3)) with this device's vendor.
//
// RC: lost packets are repeated alone (selective repeat).
#define ROCI_ABI_ECE_SELECTIVE_REPEAT 1u

// Fields and meanings of struct ibv_qp_attr (ibv_modify_qp(3)).
struct roci_abi_qp_attr {
  uint32_t state;
  uint32_t cur_state;
  uint32_t path_mtu;
  uint32_t path_mig_state;
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qpn;
  uint32_t access_flags;
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;
  struct roci_abi_ah_attr ah;
  struct roci_abi_ah_attr alt_ah;
  uint16_t pkey_index;
  uint16_t alt_pkey_index;
  uint8_t en_sqd_async_notify;
  uint8_t sq_draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port;
  uint8_t timeout;
  uint8_t retry_count;
  uint8_t rnr_retry;
  uint8_t alt_port;
  uint8_t alt_timeout;
  uint8_t ece_options;  // MODIFY_QP to RTR: agreed with the peer, ROCI_ABI_ECE_*; otherwise 0
  uint32_t rate_limit_kbps;
  uint32_t rate_burst_bytes;  // with the rate limit; 0: the daemon chooses
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_qp_attr) == 144);

struct roci_abi_modify_qp_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t mask;  // enum ibv_qp_attr_mask
  struct roci_abi_qp_attr attr;
};
struct roci_abi_modify_qp_response {
  struct roci_abi_response head;
  uint32_t state;  // after the change
  uint32_t reserved;
};
struct roci_abi_query_qp_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t mask;
};
struct roci_abi_query_qp_response {
  struct roci_abi_response head;
  struct roci_abi_qp_attr attr;
  uint32_t sq_sig_all;
  uint32_t reserved;
};

struct roci_abi_create_ah_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t reserved;
  struct roci_abi_ah_attr attr;
};  // response: roci_abi_handle_response

// ATTACH_MULTICAST, DETACH_MULTICAST (ibv_attach_mcast(3)).
struct roci_abi_multicast_request {
  struct roci_abi_request head;
  uint32_t qp;  // handle
  uint32_t reserved;
  uint8_t gid[16];
};  // response: plain
// OPEN_QP (ibv_open_qp(3)): creates a handle of this session for an existing XRC_RECV queue pair of
// the domain.
struct roci_abi_open_qp_request {
  struct roci_abi_request head;
  uint64_t user_handle;
  uint32_t xrcd;
  uint32_t qpn;
  uint32_t qp_type;  // enum ibv_qp_type
  uint32_t reserved;
};
struct roci_abi_open_qp_response {
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t state;
};
