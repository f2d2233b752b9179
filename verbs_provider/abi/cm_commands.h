// The commands of librdmacm that the connection manager serves, one row each. The daemon's decoder
// and dispatch and the plugin's code for answers are generated from these rows.
#pragma once

// What a command is about.
enum roci_abi_cm_subject {
  ROCI_ABI_CM_ON_CHANNEL,  // the event channel
  ROCI_ABI_CM_ON_ID,       // the identifier in the field `id` of the command
  // Like ON_ID, but nothing changes, so the daemon may send the answer in advance.
  ROCI_ABI_CM_QUERY_ID,
};

// A row is the command RDMA_USER_CM_CMD_<name> of <rdma/rdma_user_cm.h>, which the file that uses
// the table includes. ROW(name, subject, type, answer, handler):
// - subject: ROCI_ABI_CM_<subject>
// - type: the command's structure
// - answer: the structure that the program must have room for at the address in the field
//   `response`; QUERY_ID: the smallest one; void: the command has no answer
// - handler: the member function of the daemon's cm::Server that executes the command. It has the
//   command's name, and takes and fills in the row's structures: other pairs do not compile.
//
// The order of the rows has no meaning.
// clang-format off
#define ROCI_CM_COMMANDS(ROW)                                                              \
  ROW(CREATE_ID, ON_CHANNEL, rdma_ucm_create_id, rdma_ucm_create_id_resp, CreateId)        \
  ROW(DESTROY_ID, ON_ID, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, DestroyId)         \
  ROW(BIND_IP, ON_ID, rdma_ucm_bind_ip, void, BindIp)                                      \
  ROW(BIND, ON_ID, rdma_ucm_bind, void, Bind)                                              \
  ROW(RESOLVE_IP, ON_ID, rdma_ucm_resolve_ip, void, ResolveIp)                             \
  ROW(RESOLVE_ADDR, ON_ID, rdma_ucm_resolve_addr, void, ResolveAddr)                       \
  ROW(RESOLVE_ROUTE, ON_ID, rdma_ucm_resolve_route, void, ResolveRoute)                    \
  ROW(QUERY_ROUTE, ON_ID, rdma_ucm_query, rdma_ucm_query_route_resp, QueryRoute)           \
  ROW(QUERY, QUERY_ID, rdma_ucm_query, rdma_ucm_query_path_resp, Query)                    \
  ROW(CONNECT, ON_ID, rdma_ucm_connect, void, Connect)                                     \
  ROW(LISTEN, ON_ID, rdma_ucm_listen, void, Listen)                                        \
  ROW(ACCEPT, ON_ID, rdma_ucm_accept, void, Accept)                                        \
  ROW(REJECT, ON_ID, rdma_ucm_reject, void, Reject)                                        \
  ROW(DISCONNECT, ON_ID, rdma_ucm_disconnect, void, Disconnect)                            \
  ROW(INIT_QP_ATTR, QUERY_ID, rdma_ucm_init_qp_attr, ib_uverbs_qp_attr, InitQpAttr)        \
  ROW(GET_EVENT, ON_CHANNEL, rdma_ucm_get_event, rdma_ucm_event_resp, GetEvent)            \
  ROW(SET_OPTION, ON_ID, rdma_ucm_set_option, void, SetOption)                             \
  ROW(NOTIFY, ON_ID, rdma_ucm_notify, void, Notify)                                        \
  ROW(JOIN_IP_MCAST, ON_ID, rdma_ucm_join_ip_mcast, rdma_ucm_create_id_resp, JoinIpMcast)  \
  ROW(JOIN_MCAST, ON_ID, rdma_ucm_join_mcast, rdma_ucm_create_id_resp, JoinMcast)          \
  ROW(LEAVE_MCAST, ON_CHANNEL, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, LeaveMcast)  \
  ROW(MIGRATE_ID, ON_CHANNEL, rdma_ucm_migrate_id, rdma_ucm_migrate_resp, MigrateId)
// clang-format on
