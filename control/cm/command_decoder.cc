#include "control/cm/command_decoder.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

// Sizes without fields that older libraries do not know (ECE, ibdev_index).
constexpr uint32_t kOldConnect = offsetof(rdma_ucm_connect, ece);
constexpr uint32_t kOldAccept = offsetof(rdma_ucm_accept, ece);
constexpr uint32_t kOldEvent = offsetof(rdma_ucm_event_resp, ece);
constexpr uint32_t kOldRoute = offsetof(rdma_ucm_query_route_resp, ibdev_index);

#define ROCI_CM_COMMAND(name, type, min, out)                  \
  {                                                            \
    RDMA_USER_CM_CMD_##name, { #name, sizeof(type), min, out } \
  }
#define ROCI_CM_SIMPLE(name, type, out) ROCI_CM_COMMAND(name, type, sizeof(type), out)

struct Entry {
  uint32_t number;
  CommandInfo info;
};
constexpr Entry kCommands[] = {
    ROCI_CM_SIMPLE(CREATE_ID, rdma_ucm_create_id, sizeof(rdma_ucm_create_id_resp)),
    ROCI_CM_SIMPLE(DESTROY_ID, rdma_ucm_destroy_id, sizeof(rdma_ucm_destroy_id_resp)),
    ROCI_CM_SIMPLE(BIND_IP, rdma_ucm_bind_ip, 0),
    ROCI_CM_SIMPLE(BIND, rdma_ucm_bind, 0),
    ROCI_CM_SIMPLE(RESOLVE_IP, rdma_ucm_resolve_ip, 0),
    ROCI_CM_SIMPLE(RESOLVE_ADDR, rdma_ucm_resolve_addr, 0),
    ROCI_CM_SIMPLE(RESOLVE_ROUTE, rdma_ucm_resolve_route, 0),
    ROCI_CM_SIMPLE(QUERY_ROUTE, rdma_ucm_query, kOldRoute),
    ROCI_CM_SIMPLE(QUERY, rdma_ucm_query, sizeof(rdma_ucm_query_path_resp)),
    ROCI_CM_COMMAND(CONNECT, rdma_ucm_connect, kOldConnect, 0),
    ROCI_CM_SIMPLE(LISTEN, rdma_ucm_listen, 0),
    ROCI_CM_COMMAND(ACCEPT, rdma_ucm_accept, kOldAccept, 0),
    ROCI_CM_SIMPLE(REJECT, rdma_ucm_reject, 0),
    ROCI_CM_SIMPLE(DISCONNECT, rdma_ucm_disconnect, 0),
    ROCI_CM_SIMPLE(INIT_QP_ATTR, rdma_ucm_init_qp_attr, sizeof(ib_uverbs_qp_attr)),
    ROCI_CM_SIMPLE(GET_EVENT, rdma_ucm_get_event, kOldEvent),
    ROCI_CM_SIMPLE(SET_OPTION, rdma_ucm_set_option, 0),
    ROCI_CM_SIMPLE(NOTIFY, rdma_ucm_notify, 0),
    ROCI_CM_SIMPLE(JOIN_IP_MCAST, rdma_ucm_join_ip_mcast, sizeof(rdma_ucm_create_id_resp)),
    ROCI_CM_SIMPLE(JOIN_MCAST, rdma_ucm_join_mcast, sizeof(rdma_ucm_create_id_resp)),
    ROCI_CM_SIMPLE(LEAVE_MCAST, rdma_ucm_destroy_id, sizeof(rdma_ucm_destroy_id_resp)),
    ROCI_CM_SIMPLE(MIGRATE_ID, rdma_ucm_migrate_id, sizeof(rdma_ucm_migrate_resp)),
};

#undef ROCI_CM_SIMPLE
#undef ROCI_CM_COMMAND

}  // namespace

const CommandInfo* FindCommand(uint32_t command) {
  for (const Entry& entry : kCommands) {
    if (entry.number == command) return &entry.info;
  }
  return nullptr;
}

absl::Status DecodeCommand(const roci_abi_cm_request& request, Command& out) {
  out.info = FindCommand(request.command);
  out.number = request.command;
  if (out.info == nullptr) return StatusFromErrno(ENOSYS, "command");
  const uint32_t in = request.in_size;
  const uint32_t extra = request.extra_size;
  if (in < out.info->min_size || in > sizeof(request.data) || extra > sizeof(request.data) - in) {
    return absl::InvalidArgumentError("size of the command");
  }
  if (extra != 0 && request.command != RDMA_USER_CM_CMD_SET_OPTION) {
    return absl::InvalidArgumentError("data after the command");
  }
  if (request.out_size < out.info->out_size) return StatusFromErrno(ENOSPC, "answer");
  // A command longer than its newest form is truncated, as in Linux.
  const size_t head = std::min<size_t>(in, out.info->in_size);
  std::memcpy(out.bytes.data(), request.data, head);
  if (extra > out.bytes.size() - out.info->in_size) {
    return absl::InvalidArgumentError("the option is too long");
  }
  std::memcpy(out.bytes.data() + out.info->in_size, request.data + in, extra);
  out.extra = std::span<const std::byte>(out.bytes).subspan(out.info->in_size, extra);
  return absl::OkStatus();
}

}  // namespace roci::control::cm
