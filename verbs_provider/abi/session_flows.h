// Messages of a session (session.h): flow rules and their counters, receive side scaling.
#pragma once

#include "verbs_provider/abi/session_head.h"

// The header fields that flow rules match, in the frame's byte order; ibv_create_flow(3).
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
  uint8_t layers;  // ROCI_ABI_FLOW_VLAN ...: layers that the frame must have
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
