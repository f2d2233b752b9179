// Control messages between the provider plugin and the daemon over a SOCK_SEQPACKET Unix socket,
// one session (one ibv_context) per connection: a request, then its response, one at a time. Host
// byte order unless a field says so.
//
// Every request begins with roci_abi_request, every response with roci_abi_response; a message has
// exactly the size of its structure. File descriptors travel as SCM_RIGHTS beside the message that
// names them.
#pragma once

#include "verbs_provider/abi/rings.h"

#define ROCI_ABI_MAGIC 0x69636f72u /* "roci" */
#define ROCI_ABI_MAJOR 1           /* differs: no session */
#define ROCI_ABI_MINOR 0           /* the lower of both sides rules */

#define ROCI_ABI_DEVICE_NAME_MAX 64
#define ROCI_ABI_MAX_EXTENTS 16

enum roci_abi_command {
  ROCI_ABI_HELLO = 1,
  ROCI_ABI_QUERY_DEVICE,
  ROCI_ABI_QUERY_PORT,
  ROCI_ABI_ALLOC_PD,
  ROCI_ABI_DEALLOC_PD,
  ROCI_ABI_REG_MR,
  ROCI_ABI_REREG_MR,
  ROCI_ABI_DEREG_MR,
  // The app is about to turn a converted range back into private memory: from the response on, the
  // daemon reaches it by process_vm only.
  ROCI_ABI_UNSHARE_RANGE,
  ROCI_ABI_CREATE_COMP_CHANNEL,
  ROCI_ABI_DESTROY_COMP_CHANNEL,
  ROCI_ABI_CREATE_CQ,
  ROCI_ABI_RESIZE_CQ,
  ROCI_ABI_DESTROY_CQ,
  ROCI_ABI_CREATE_QP,
  ROCI_ABI_MODIFY_QP,
  ROCI_ABI_QUERY_QP,
  ROCI_ABI_DESTROY_QP,
  ROCI_ABI_CREATE_AH,
  ROCI_ABI_DESTROY_AH,
  ROCI_ABI_COMMAND_COUNT,
};

struct roci_abi_request {
  uint32_t command;  // roci_abi_command
  uint32_t size;     // of the whole message, bytes
  uint32_t serial;   // echoed
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_request) == 16);

struct roci_abi_response {
  uint32_t serial;
  int32_t error;  // 0 or a positive errno
  uint32_t fd_count;
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_response) == 16);

// HELLO. Response descriptors, in this order: doorbell page memfd, wake eventfd, async event pipe
// (reading end), and, if flags say so, a userfaultfd that handles kernel faults (for apps that may
// not open one).
#define ROCI_ABI_HELLO_HAS_USERFAULTFD 1u
struct roci_abi_hello_request {
  struct roci_abi_request head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  char device[ROCI_ABI_DEVICE_NAME_MAX];  // NUL-terminated
};
struct roci_abi_hello_response {
  struct roci_abi_response head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  uint32_t flags;
  uint32_t session;        // number, as `roci show app` prints it
  uint32_t doorbell_size;  // bytes of the doorbell memfd
  uint32_t memory_policy;  // roci_abi_memory_policy
  uint32_t auto_inline;  // bytes up to which the provider copies SENDs and WRITEs into the ring by
                         // itself
  uint32_t num_comp_vectors;
};

enum roci_abi_memory_policy {
  ROCI_ABI_MEMORY_AUTO = 0,
  ROCI_ABI_MEMORY_PROCESS_VM = 1,  // never map, never convert
  ROCI_ABI_MEMORY_MAP = 2,         // convert or map whatever can be, whatever its size
};

struct roci_abi_query_device_request {
  struct roci_abi_request head;
};
// Everything that ibv_query_device_ex(3) reports and this device holds; the provider sets what is
// not here to 0.
struct roci_abi_query_device_response {
  struct roci_abi_response head;
  uint64_t node_guid;       // network byte order
  uint64_t sys_image_guid;  // network byte order
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint64_t device_cap_flags;
  uint64_t device_cap_flags_ex;
  uint64_t hca_core_clock_khz;
  uint64_t completion_timestamp_mask;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hw_ver;
  uint32_t max_qp;
  uint32_t max_qp_wr;
  uint32_t max_sge;
  uint32_t max_sge_rd;
  uint32_t max_cq;
  uint32_t max_cqe;
  uint32_t max_mr;
  uint32_t max_pd;
  uint32_t max_qp_rd_atom;
  uint32_t max_res_rd_atom;
  uint32_t max_qp_init_rd_atom;
  uint32_t atomic_cap;  // enum ibv_atomic_cap
  uint32_t max_mw;
  uint32_t max_mcast_grp;
  uint32_t max_mcast_qp_attach;
  uint32_t max_total_mcast_qp_attach;
  uint32_t max_ah;
  uint32_t max_srq;
  uint32_t max_srq_wr;
  uint32_t max_srq_sge;
  uint32_t max_pkeys;
  uint32_t max_inline;
  uint8_t local_ca_ack_delay;
  uint8_t phys_port_cnt;
  uint8_t reserved[2];
  char fw_ver[64];
};

struct roci_abi_query_port_request {
  struct roci_abi_request head;
  uint32_t port;
  uint32_t reserved;
};
struct roci_abi_query_port_response {
  struct roci_abi_response head;
  uint32_t state;       // enum ibv_port_state
  uint32_t max_mtu;     // enum ibv_mtu
  uint32_t active_mtu;  // enum ibv_mtu
  uint32_t gid_table_length;
  uint32_t port_cap_flags;
  uint32_t max_message_size;
  uint32_t bad_pkey_counter;
  uint32_t qkey_violation_counter;
  uint16_t pkey_table_length;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  uint8_t max_vl_num;
  uint8_t link_layer;
  uint8_t flags;
  uint32_t port_cap_flags2;
  uint32_t active_speed_ex;
};

// Requests that name one object and responses that carry nothing more.
struct roci_abi_handle_request {  // DEALLOC_PD, DEREG_MR, DESTROY_COMP_CHANNEL, DESTROY_AH, ...
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t reserved;
};
struct roci_abi_plain_request {  // ALLOC_PD, CREATE_COMP_CHANNEL
  struct roci_abi_request head;
};
struct roci_abi_handle_response {  // ALLOC_PD; CREATE_COMP_CHANNEL (1 descriptor: reading end of
                                   // the event pipe)
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t reserved;
};
struct roci_abi_plain_response {
  struct roci_abi_response head;
};

enum roci_abi_extent_kind {
  ROCI_ABI_EXTENT_PROCESS_VM = 0,  // process_vm_readv/writev
  ROCI_ABI_EXTENT_FD = 1,  // map descriptor number `fd_index` of this message at `file_offset`
  ROCI_ABI_EXTENT_MAP_FILES =
      2,  // shared file mapping: open /proc/PID/map_files/<map_start>-<map_end>
};
struct roci_abi_extent {
  uint64_t va;
  uint64_t length;  // bytes
  uint64_t file_offset;
  uint64_t map_start;  // MAP_FILES only
  uint64_t map_end;
  uint32_t kind;  // roci_abi_extent_kind
  uint32_t fd_index;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_extent) == 48);

// REG_MR. Extents are sorted, without gaps or overlaps, and cover [start, start + length) exactly.
// Several extents may name the same descriptor.
struct roci_abi_reg_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t access;  // enum ibv_access_flags
  uint64_t start;   // address in the app
  uint64_t length;
  uint64_t iova;  // address that work requests use for `start`; 0 for zero-based regions
  uint32_t extent_count;
  uint32_t fd_count;
  struct roci_abi_extent extents[ROCI_ABI_MAX_EXTENTS];
};
struct roci_abi_reg_mr_response {
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
  uint32_t reserved;
};
struct roci_abi_rereg_mr_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t flags;  // enum ibv_rereg_mr_flags; fields below count where their flag is set
  uint32_t pd;
  uint32_t access;
  uint64_t start;
  uint64_t length;
  uint64_t iova;
  uint32_t extent_count;
  uint32_t fd_count;
  struct roci_abi_extent extents[ROCI_ABI_MAX_EXTENTS];
};  // response: roci_abi_reg_mr_response

struct roci_abi_unshare_range_request {
  struct roci_abi_request head;
  uint64_t start;
  uint64_t length;
};  // response: plain

struct roci_abi_create_cq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // what events carry; never interpreted
  uint32_t entries;      // asked for, >= 1
  uint32_t channel;      // handle, or ~0
  uint32_t comp_vector;
  uint32_t flags;
};
struct roci_abi_create_cq_response {  // 1 descriptor: the CQ's memfd
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t capacity;  // entries in the ring, a power of two
  uint32_t entries;   // what the app may rely on (>= asked for)
  uint32_t entries_offset;
  uint64_t memory_size;
};
// RESIZE_CQ: the daemon copies entries that were not consumed to the new ring and continues there,
// generations as for an empty ring of the new size; the app switches when the response comes.
// Request names the app's consumer index.
struct roci_abi_resize_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t entries;
  uint32_t consumer;
  uint32_t reserved;
};
struct roci_abi_resize_cq_response {  // 1 descriptor: the new memfd. Index 0 is the oldest entry
                                      // not consumed.
  struct roci_abi_response head;
  uint32_t capacity;
  uint32_t entries;
  uint32_t entries_offset;
  uint32_t reserved;
  uint64_t memory_size;
};
struct roci_abi_destroy_response {  // DESTROY_CQ, DESTROY_QP: events sent so far, for which the app
                                    // waits
  struct roci_abi_response head;
  uint32_t comp_events;
  uint32_t async_events;
};

struct roci_abi_create_qp_request {
  struct roci_abi_request head;
  uint64_t user_handle;
  uint32_t pd;
  uint32_t send_cq;
  uint32_t recv_cq;
  uint32_t srq;      // ~0 = none
  uint32_t qp_type;  // enum ibv_qp_type
  uint32_t sq_sig_all;
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;
  uint32_t flags;
};
struct roci_abi_create_qp_response {  // 1 descriptor: the memfd with both queues
  struct roci_abi_response head;
  uint32_t handle;  // session-local, < ROCI_ABI_MAX_QP_HANDLES: the doorbell bit
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
  uint32_t reserved;
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
  uint8_t reserved;
  uint32_t rate_limit_kbps;
  uint32_t reserved1;
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

// What the event pipes carry: the same bytes that the kernel's uverbs descriptors do, since
// libibverbs reads them.
struct roci_abi_async_event {
  uint64_t element;  // user_handle of the QP or CQ, or the port number
  uint32_t type;     // enum ibv_event_type
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_async_event) == 16);
struct roci_abi_comp_event {
  uint64_t user_handle;  // of the CQ
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_comp_event) == 8);
