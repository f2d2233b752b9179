// Messages of a session (session.h): opening a device and querying its attributes.
#pragma once

#include "verbs_provider/abi/session_head.h"

// HELLO. Request descriptors: see ROCI_ABI_FEATURE_APP_MEMORY. Response descriptors, in this order:
// doorbell page memfd, wake eventfd, async event socket (receiving end), and, with
// ROCI_ABI_HELLO_HAS_USERFAULTFD in `flags`, a descriptor of /dev/userfaultfd for programs that may
// not open it.
#define ROCI_ABI_HELLO_HAS_USERFAULTFD 1u
// Posts that the state of the queue pair forbids return 0 and are dropped; READs, WRITEs and
// atomics on datagram queue pairs are taken, and complete with IBV_WC_LOC_QP_OP_ERR. Plugins that
// do not know the flag return EINVAL.
#define ROCI_ABI_HELLO_LENIENT_POSTS 2u
// Bits of `features`: what a side supports in addition to its minor version.
//
// Set by the daemon: the program may skip indices of a send queue, see rings.h.
#define ROCI_ABI_FEATURE_RESTART 1u
// Set by both: ROCI_ABI_SEND_IP_CHECKSUM, see rings.h. To a program without it, the daemon reports
// a device without checksum offload.
#define ROCI_ABI_FEATURE_IP_CHECKSUM 2u
// Set by the program: the last descriptor of HELLO or ATTACH is /proc/self/mem, opened for reading
// and writing. The daemon reaches the program's memory through it, even if it does not see the
// program's process. EBADF: the descriptor is another file; EPERM: it belongs to another process. A
// daemon without this feature answers EINVAL; the program may then repeat the request without it.
// Set by the daemon: it has the feature.
#define ROCI_ABI_FEATURE_APP_MEMORY 4u
// Set by a program that may not open /proc/self/mem, instead of ROCI_ABI_FEATURE_APP_MEMORY: the
// last descriptor is a memfd, sealed against changes of its size, with one roci_abi_memory_proof,
// that the program has mapped (MAP_SHARED, writable). The daemon opens the memory of the connected
// process, writes a word through one of the two and reads it through the other. If it finds the
// word, the process still runs the program that sent the request, and has not called exec since.
#define ROCI_ABI_FEATURE_MEMORY_PROOF 8u
struct roci_abi_memory_proof {
  uint64_t address;  // in the program, of this structure
  uint64_t word;     // written by the daemon
};
// Set by both: while the daemon resolves the MAC address of a peer, the session handles other
// requests. If the path of a CREATE_AH or MODIFY_QP is not known, the daemon begins to resolve it
// and answers EINPROGRESS with a number in roci_abi_response::wait. The program sends the request
// again with that number in roci_abi_request::wait, until it gets another answer: when
// roci_abi_doorbells::paths has changed, and from time to time, since a failure changes nothing. (A
// side without this feature expects one answer, after up to 3.15 s.)
#define ROCI_ABI_FEATURE_PATH_WAITS 16u
// Set by the daemon if the device can repeat selectively: a MODIFY_QP to RTR may have
// ROCI_ABI_ECE_SELECTIVE_REPEAT.
#define ROCI_ABI_FEATURE_SELECTIVE_REPEAT 32u
// Set by a daemon whose time is virtual: the program counts polls that find nothing
// (roci_abi_doorbells::empty_polls), so that the daemon knows when it has seen all its completions.
// (For a program that does not, the daemon waits for some time.)
#define ROCI_ABI_FEATURE_POLL_COUNT 64u
struct roci_abi_hello_request {
  struct roci_abi_request head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  char device[ROCI_ABI_DEVICE_NAME_MAX];  // NUL-terminated
};
struct roci_abi_hello_response {  // with EPROTONOSUPPORT only the head, magic and major are set
  struct roci_abi_response head;
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  uint32_t flags;
  uint32_t session;        // number, as `roci show apps` prints it
  uint32_t doorbell_size;  // bytes of the doorbell memfd
  uint32_t memory_policy;  // roci_abi_memory_policy
  // The provider copies SENDs and WRITEs up to this many bytes into the ring, without being asked.
  uint32_t auto_inline;
  uint32_t num_comp_vectors;
};

enum roci_abi_memory_policy {
  ROCI_ABI_MEMORY_AUTO = 0,           // as NO_CONVERSION; only older daemons send it
  ROCI_ABI_MEMORY_PROCESS_VM = 1,     // never map, never convert
  ROCI_ABI_MEMORY_MAP = 2,            // convert or map all memory that can be
  ROCI_ABI_MEMORY_NO_CONVERSION = 3,  // map files, never convert
};

#define ROCI_ABI_VENDOR_ID 0x526fu /* "Ro"; not registered with the IEEE */

struct roci_abi_query_device_request {
  struct roci_abi_request head;
};
// The device reports no on-demand paging. A plugin that does not know the flag reports it, and the
// daemon refuses such regions.
#define ROCI_ABI_DEVICE_NO_ON_DEMAND_PAGING 1u
// The attributes that ibv_query_device_ex(3) reports. The provider sets those that are not here to
// 0.
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
  uint8_t flags;  // ROCI_ABI_DEVICE_*; older daemons send 0
  uint8_t reserved;
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
