// The commands of librdmacm that the connection manager serves, one row each. The daemon's decoder
// and dispatch and the plugin's code for answers are generated from these rows.
#pragma once

// A row is the command RDMA_USER_CM_CMD_<name> of <rdma/rdma_user_cm.h>, which the file that uses
// the table includes. The macro of a row says what the command is about:
// - ON_CHANNEL: the event channel
// - ON_ID: the identifier in the field `id` of `type`
// - QUERY_ID: like ON_ID, but nothing changes, so the daemon may send the answer in advance
//
// The columns:
// - name, type: the command and its structure
// - answer: the structure that the program must have room for at the address in the field
//   `response`; QUERY_ID: the smallest one; void: the command has no answer
// - handler: the member function of the daemon's cm::Server that executes the command. It has the
//   command's name, and takes and fills in the row's structures: other pairs do not compile.
//
// The order of the rows has no meaning.
// clang-format off
#define ROCI_CM_COMMANDS(ON_CHANNEL, ON_ID, QUERY_ID)                                  \
  ON_CHANNEL(CREATE_ID, rdma_ucm_create_id, rdma_ucm_create_id_resp, CreateId)         \
  ON_ID(DESTROY_ID, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, DestroyId)          \
  ON_ID(BIND_IP, rdma_ucm_bind_ip, void, BindIp)                                       \
  ON_ID(BIND, rdma_ucm_bind, void, Bind)                                               \
  ON_ID(RESOLVE_IP, rdma_ucm_resolve_ip, void, ResolveIp)                              \
  ON_ID(RESOLVE_ADDR, rdma_ucm_resolve_addr, void, ResolveAddr)                        \
  ON_ID(RESOLVE_ROUTE, rdma_ucm_resolve_route, void, ResolveRoute)                     \
  ON_ID(QUERY_ROUTE, rdma_ucm_query, rdma_ucm_query_route_resp, QueryRoute)            \
  QUERY_ID(QUERY, rdma_ucm_query, rdma_ucm_query_path_resp, Query)                     \
  ON_ID(CONNECT, rdma_ucm_connect, void, Connect)                                      \
  ON_ID(LISTEN, rdma_ucm_listen, void, Listen)                                         \
  ON_ID(ACCEPT, rdma_ucm_accept, void, Accept)                                         \
  ON_ID(REJECT, rdma_ucm_reject, void, Reject)                                         \
  ON_ID(DISCONNECT, rdma_ucm_disconnect, void, Disconnect)                             \
  QUERY_ID(INIT_QP_ATTR, rdma_ucm_init_qp_attr, ib_uverbs_qp_attr, InitQpAttr)         \
  ON_CHANNEL(GET_EVENT, rdma_ucm_get_event, rdma_ucm_event_resp, GetEvent)             \
  ON_ID(SET_OPTION, rdma_ucm_set_option, void, SetOption)                              \
  ON_ID(NOTIFY, rdma_ucm_notify, void, Notify)                                         \
  ON_ID(JOIN_IP_MCAST, rdma_ucm_join_ip_mcast, rdma_ucm_create_id_resp, JoinIpMcast)   \
  ON_ID(JOIN_MCAST, rdma_ucm_join_mcast, rdma_ucm_create_id_resp, JoinMcast)           \
  ON_CHANNEL(LEAVE_MCAST, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, LeaveMcast)   \
  ON_CHANNEL(MIGRATE_ID, rdma_ucm_migrate_id, rdma_ucm_migrate_resp, MigrateId)
// clang-format on
