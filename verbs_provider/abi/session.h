// Control messages between the provider plugin and the daemon over a SOCK_SEQPACKET Unix socket,
// one session (one ibv_context) per connection: a request, then its response, one at a time. Host
// byte order unless a field says so.
//
// A connection that the daemon cannot take gets, unasked, one roci_abi_plain_response with serial 0
// and the error (EUSERS: too many sessions; EAGAIN: too many of this user; ENFILE: the daemon is
// out of descriptors), and is closed. One that says no HELLO within some seconds is closed.
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
  ROCI_ABI_ATTACH_MULTICAST,
  ROCI_ABI_DETACH_MULTICAST,
  ROCI_ABI_MODIFY_CQ,
  ROCI_ABI_ALLOC_MW,
  ROCI_ABI_DEALLOC_MW,
  ROCI_ABI_ALLOC_NULL_MR,
  ROCI_ABI_ALLOC_DM,
  ROCI_ABI_FREE_DM,
  ROCI_ABI_REG_DM_MR,
  ROCI_ABI_CREATE_FLOW,
  ROCI_ABI_DESTROY_FLOW,
  ROCI_ABI_CREATE_COUNTERS,
  ROCI_ABI_DESTROY_COUNTERS,
  ROCI_ABI_ATTACH_COUNTERS,
  ROCI_ABI_READ_COUNTERS,
  ROCI_ABI_CREATE_QUEUE_TABLE,
  ROCI_ABI_DESTROY_QUEUE_TABLE,
  ROCI_ABI_CREATE_RSS_QP,
  ROCI_ABI_CREATE_SRQ,
  ROCI_ABI_MODIFY_SRQ,
  ROCI_ABI_QUERY_SRQ,
  ROCI_ABI_DESTROY_SRQ,
  ROCI_ABI_OPEN_XRCD,
  ROCI_ABI_CLOSE_XRCD,
  ROCI_ABI_OPEN_QP,
  ROCI_ABI_CREATE_TAG_SRQ,  // tag_matching.h
  ROCI_ABI_ALLOC_LIST_MR,   // list_mr.h
  ROCI_ABI_FREE_LIST_MR,
  ROCI_ABI_NAME_CONTEXT,
  ROCI_ABI_ATTACH,
  ROCI_ABI_IMPORT_PD,
  ROCI_ABI_IMPORT_MR,
  ROCI_ABI_IMPORT_DM,
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
// `features` of the response: what this daemon understands beside the minor version.
#define ROCI_ABI_FEATURE_RESTART 1u  // send queues may leave indices out, see rings.h
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
  uint32_t max_cq_count;   // of MODIFY_CQ
  uint32_t max_cq_period;  // microseconds
  uint64_t max_dm_size;    // bytes
  uint64_t rss_fields;     // enum ibv_rx_hash_fields
  uint32_t rss_functions;  // enum ibv_rx_hash_function_flags
  uint32_t rss_qp_types;   // bit i: enum ibv_qp_type i
  uint32_t max_queue_tables;
  uint32_t max_queue_table_size;
  uint32_t max_work_queues;
  uint32_t min_rate_kbps;
  uint32_t max_rate_kbps;
  uint32_t rate_qp_types;  // bit i: enum ibv_qp_type i
  // Tag matching (struct ibv_tm_caps).
  uint32_t max_tags;
  uint32_t max_tag_ops;
  uint32_t max_tag_sge;
  uint32_t max_rndv_header;  // bytes
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

// REG_MR. Extents are sorted, without gaps or overlaps, and cover [start, start + length) exactly:
// none where length is 0. Several extents may name the same descriptor.
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
// Regions of ODP access (IBV_ACCESS_ON_DEMAND) are one extent by process_vm; they may have holes,
// and with start 0 and length ~0 they are the whole address space.

struct roci_abi_alloc_null_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t reserved;
};  // response: roci_abi_reg_mr_response

struct roci_abi_alloc_dm_request {
  struct roci_abi_request head;
  uint64_t length;     // bytes
  uint32_t log_align;  // of its address
  uint32_t reserved;
};
struct roci_abi_alloc_dm_response {  // 1 descriptor: the memfd that is the device memory
  struct roci_abi_response head;
  uint32_t handle;
  uint32_t reserved;
  uint64_t memory_size;  // of the memfd, whole pages
};
struct roci_abi_reg_dm_mr_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t dm;      // handle
  uint64_t offset;  // in the device memory, bytes
  uint64_t length;
  uint32_t access;  // enum ibv_access_flags; zero-based
  uint32_t reserved;
};  // response: roci_abi_reg_mr_response

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

// What does not fit in the ring is lost without further ado, and the queue lives on
// (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
#define ROCI_ABI_CQ_IGNORE_OVERRUN 1u
struct roci_abi_create_cq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // what events carry; never interpreted
  uint32_t entries;      // asked for, >= 1
  uint32_t channel;      // handle, or ~0
  uint32_t comp_vector;
  uint32_t flags;  // ROCI_ABI_CQ_*
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
// MODIFY_CQ: how long completion events may be held back (ibv_modify_cq(3)): until `count`
// completions have come, or `period_us` has passed since the first of them, whichever is first; 0
// leaves that condition out, and both 0 send every event at once. Response: plain.
struct roci_abi_modify_cq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t count;
  uint32_t period_us;
  uint32_t reserved;
};
struct roci_abi_destroy_response {  // DESTROY_CQ, _QP, _SRQ: events sent so far, for which the app
                                    // waits
  struct roci_abi_response head;
  uint32_t comp_events;
  uint32_t async_events;
};

// Bits of roci_abi_create_qp_request::flags; values are those of enum ibv_qp_create_flags.
#define ROCI_ABI_QP_BLOCK_SELF_MULTICAST (1u << 1)
// No ibv_qp_create_flags: a raw packet queue pair that receives for an RSS queue pair only, which
// programs know as a work queue (ibv_create_wq(3)). Its states are RESET, RTR (ready) and ERR.
#define ROCI_ABI_QP_WORK_QUEUE (1u << 31)

struct roci_abi_create_qp_request {
  struct roci_abi_request head;
  uint64_t user_handle;
  uint32_t pd;       // XRC_RECV: handle of the XRC domain instead
  uint32_t send_cq;  // XRC_RECV: not looked at
  uint32_t recv_cq;  // XRC_SEND, XRC_RECV: not looked at
  uint32_t srq;      // ~0 = none; the XRC types have none
  uint32_t qp_type;  // enum ibv_qp_type
  uint32_t sq_sig_all;
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline;
  uint32_t flags;
};
struct roci_abi_create_qp_response {  // 1 descriptor: the memfd with both queues; XRC_RECV: none,
                                      // and no queue
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
  uint32_t rate_burst_bytes;  // with the rate limit; 0: the daemon's choice
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
// OPEN_QP (ibv_open_qp(3)): one more handle, of this session, for an XRC_RECV queue pair of the
// domain.
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

// Values of enum ibv_srq_type.
enum roci_abi_srq_type {
  ROCI_ABI_SRQ_BASIC = 0,
  ROCI_ABI_SRQ_XRC = 1,
};
struct roci_abi_create_srq_request {
  struct roci_abi_request head;
  uint64_t user_handle;  // what events carry
  uint32_t pd;
  uint32_t type;  // roci_abi_srq_type
  uint32_t xrcd;  // XRC only
  uint32_t cq;    // XRC only
  uint32_t max_wr;
  uint32_t max_sge;
};
// Where things are in the memfd; all slots are free, the ring begins at index 0.
struct roci_abi_srq_layout {
  uint32_t max_wr;         // granted: slots
  uint32_t max_sge;        // granted
  uint32_t ring_capacity;  // a power of two >= max_wr
  uint32_t stride;         // of slots, bytes
  uint32_t ring_offset;
  uint32_t slots_offset;
  uint64_t memory_size;
};
struct roci_abi_create_srq_response {  // 1 descriptor: the memfd
  struct roci_abi_response head;
  uint32_t handle;  // session-local, never 0, < ROCI_ABI_MAX_SRQ_HANDLES
  uint32_t srqn;    // XRC only, else 0
  struct roci_abi_srq_layout layout;
};
#define ROCI_ABI_SRQ_MAX_WR 1u /* enum ibv_srq_attr_mask */
#define ROCI_ABI_SRQ_LIMIT 2u
// The app posts nothing while it waits for a resize. Slots keep their numbers and the ring its
// index; a queue that grows continues in new memory, one that shrinks (never below what is
// posted) stays where it is.
struct roci_abi_modify_srq_request {
  struct roci_abi_request head;
  uint32_t handle;
  uint32_t mask;
  uint32_t max_wr;
  uint32_t limit;
};
struct roci_abi_modify_srq_response {  // a queue that has grown: 1 descriptor, and the layout
  struct roci_abi_response head;
  struct roci_abi_srq_layout layout;
};
struct roci_abi_query_srq_response {  // request: roci_abi_handle_request
  struct roci_abi_response head;
  uint32_t max_wr;
  uint32_t max_sge;
  uint32_t limit;  // 0: not armed, or already fired
  uint32_t reserved;
};

// OPEN_XRCD (ibv_open_xrcd(3)). With has_file the message has one descriptor, whose inode names
// the domain.
#define ROCI_ABI_XRCD_CREATE 1u
#define ROCI_ABI_XRCD_EXCLUSIVE 2u
struct roci_abi_open_xrcd_request {
  struct roci_abi_request head;
  uint32_t has_file;
  uint32_t flags;
};  // response: roci_abi_handle_response

struct roci_abi_alloc_mw_request {
  struct roci_abi_request head;
  uint32_t pd;
  uint32_t type;  // enum ibv_mw_type
};
struct roci_abi_alloc_mw_response {
  struct roci_abi_response head;
  uint32_t handle;  // the upper 24 bits of each of its R_Keys
  uint32_t rkey;
};

// What flow rules look at, in the frame's byte order; ibv_create_flow(3).
#define ROCI_ABI_FLOW_VLAN (1u << 0)
#define ROCI_ABI_FLOW_IPV4 (1u << 1)
#define ROCI_ABI_FLOW_IPV6 (1u << 2)
#define ROCI_ABI_FLOW_TCP (1u << 3)
#define ROCI_ABI_FLOW_UDP (1u << 4)
struct roci_abi_flow_key {
  uint8_t dst_mac[6];
  uint8_t src_mac[6];
  uint16_t ether_type;
  uint16_t vlan_tci;
  uint8_t src_ip[16];  // IPv4: the first 4 bytes
  uint8_t dst_ip[16];
  uint32_t flow_label;
  uint8_t protocol;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t ip_flags;
  uint16_t src_port;
  uint16_t dst_port;
  uint8_t layers;  // ROCI_ABI_FLOW_VLAN ...: layers that must be there
  uint8_t reserved[3];
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_flow_key) == 64);

#define ROCI_ABI_FLOW_DROP (1u << 0)
#define ROCI_ABI_FLOW_COUNT (1u << 1)    // into `counters`
#define ROCI_ABI_FLOW_PASS_ON (1u << 2)  // IBV_FLOW_ATTR_FLAGS_DONT_TRAP
struct roci_abi_create_flow_request {
  struct roci_abi_request head;
  uint32_t qp;    // handle
  uint32_t type;  // enum ibv_flow_attr_type
  uint32_t port;
  uint32_t actions;
  uint32_t counters;  // handle
  uint32_t tag;
  uint16_t priority;
  uint16_t reserved[3];
  struct roci_abi_flow_key value;
  struct roci_abi_flow_key mask;
};  // response: roci_abi_handle_response

struct roci_abi_attach_counters_request {
  struct roci_abi_request head;
  uint32_t flow;  // handle
  uint32_t counters;
};                                        // response: plain
struct roci_abi_read_counters_response {  // the request names the counters object
  struct roci_abi_response head;
  uint64_t packets;
  uint64_t bytes;
};

#define ROCI_ABI_MAX_QUEUE_TABLE_LOG 7
struct roci_abi_create_queue_table_request {
  struct roci_abi_request head;
  uint32_t log_size;
  uint32_t reserved;
  uint32_t queues[1 << ROCI_ABI_MAX_QUEUE_TABLE_LOG];  // handles of work queues
};                                                     // response: roci_abi_handle_response

#define ROCI_ABI_RSS_KEY_BYTES 40
struct roci_abi_create_rss_qp_request {
  struct roci_abi_request head;
  uint64_t user_handle;
  uint32_t pd;
  uint32_t table;   // handle
  uint32_t fields;  // enum ibv_rx_hash_fields
  uint32_t reserved;
  uint8_t key[ROCI_ABI_RSS_KEY_BYTES];
};  // response: roci_abi_create_qp_response

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

// What the event pipes carry: the same bytes that the kernel's uverbs descriptors do, since
// libibverbs reads them.
struct roci_abi_async_event {
  uint64_t element;  // user_handle of the QP, CQ or SRQ, or the port number
  uint32_t type;     // enum ibv_event_type
  uint32_t reserved;
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_async_event) == 16);
struct roci_abi_comp_event {
  uint64_t user_handle;  // of the CQ
};
ROCI_ABI_ASSERT(sizeof(struct roci_abi_comp_event) == 8);
