// The handlers of the server of the connection manager, one for each command of
// verbs_provider/abi/cm_commands.h.
#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "control/cm/options.h"
#include "control/cm/questions.h"
#include "control/cm/route_queries.h"
#include "control/cm/server.h"
#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

absl::StatusOr<SocketAddress> Load(AddressBytes bytes) {
  const std::optional<SocketAddress> address = LoadSocketAddress(bytes);
  if (!address) return absl::InvalidArgumentError("invalid address");
  return *address;
}

}  // namespace

absl::Status Server::CreateId(Channel& channel, const rdma_ucm_create_id& in,
                              rdma_ucm_create_id_resp& out) {
  const absl::StatusOr<uint32_t> number = manager_.Create(channel, in);
  if (number.ok()) out.id = *number;
  return number.status();
}

absl::Status Server::DestroyId(CmId& id, const rdma_ucm_destroy_id&,
                               rdma_ucm_destroy_id_resp& out) {
  out.events_reported = manager_.Destroy(id);
  return absl::OkStatus();
}

absl::Status Server::BindIp(CmId& id, const rdma_ucm_bind_ip& in) {
  return BindTo(id, LocalAddressIn(in));
}

absl::Status Server::Bind(CmId& id, const rdma_ucm_bind& in) {
  return BindTo(id, LocalAddressIn(in));
}

absl::Status Server::ResolveIp(CmId& id, const rdma_ucm_resolve_ip& in) {
  return Resolve(id, LocalAddressIn(in), AddressIn(in.dst_addr), in.timeout_ms);
}

absl::Status Server::ResolveAddr(CmId& id, const rdma_ucm_resolve_addr& in) {
  return Resolve(id, LocalAddressIn(in), AddressIn(in.dst_addr, in.dst_size), in.timeout_ms);
}

absl::Status Server::ResolveRoute(CmId& id, const rdma_ucm_resolve_route&) {
  return cm::ResolveRoute(id);
}

absl::Status Server::QueryRoute(CmId& id, const rdma_ucm_query&, rdma_ucm_query_route_resp& out) {
  cm::QueryRoute(id, out);
  return absl::OkStatus();
}

absl::Status Server::Query(CmId& id, const rdma_ucm_query& in,
                           QueryAnswer<rdma_ucm_query_path_resp> out) {
  return PutAnswer(id, {RDMA_USER_CM_CMD_QUERY, in.option}, out.response);
}

absl::Status Server::Connect(CmId& id, const rdma_ucm_connect& in) {
  return manager_.Connect(id, in.conn_param, in.ece);
}

absl::Status Server::Listen(CmId& id, const rdma_ucm_listen& in) {
  return manager_.bindings().Listen(id, in.backlog);
}

absl::Status Server::Accept(CmId& id, const rdma_ucm_accept& in) {
  return manager_.Accept(id, in.uid, in.conn_param, in.ece);
}

absl::Status Server::Reject(CmId& id, const rdma_ucm_reject& in) {
  return manager_.Reject(
      id, in.reason, {reinterpret_cast<const std::byte*>(in.private_data), in.private_data_len});
}

absl::Status Server::Disconnect(CmId& id, const rdma_ucm_disconnect&) {
  return manager_.Disconnect(id);
}

absl::Status Server::InitQpAttr(CmId& id, const rdma_ucm_init_qp_attr& in,
                                QueryAnswer<ib_uverbs_qp_attr> out) {
  return PutAnswer(id, {RDMA_USER_CM_CMD_INIT_QP_ATTR, in.qp_state}, out.response);
}

absl::Status Server::GetEvent(Channel& channel, const rdma_ucm_get_event&,
                              rdma_ucm_event_resp& out) {
  if (channel.events().empty()) return StatusFromErrno(EAGAIN, "no event is queued");
  out = manager_.TakeEvent(channel);
  return absl::OkStatus();
}

absl::Status Server::SetOption(CmId& id, const rdma_ucm_set_option& in,
                               std::span<const std::byte> value) {
  return cm::SetOption(id, in.level, in.optname, value);
}

absl::Status Server::Notify(CmId& id, const rdma_ucm_notify& in) {
  return manager_.Notify(id, in.event);
}

absl::Status Server::JoinIpMcast(CmId& id, const rdma_ucm_join_ip_mcast& in,
                                 rdma_ucm_create_id_resp& out) {
  return Join(id, in.uid, AddressIn(in.addr), RDMA_MC_JOIN_FLAG_FULLMEMBER, out);
}

absl::Status Server::JoinMcast(CmId& id, const rdma_ucm_join_mcast& in,
                               rdma_ucm_create_id_resp& out) {
  return Join(id, in.uid, AddressIn(in.addr, in.addr_size), in.join_flags, out);
}

absl::Status Server::LeaveMcast(Channel& channel, const rdma_ucm_destroy_id& in,
                                rdma_ucm_destroy_id_resp& out) {
  const absl::StatusOr<uint32_t> reported = manager_.memberships().Leave(channel, in.id);
  if (reported.ok()) out.events_reported = *reported;
  return reported.status();
}

// Both channels must have been opened by the same process.
absl::Status Server::MigrateId(Channel& channel, const rdma_ucm_migrate_id& in,
                               rdma_ucm_migrate_resp& out) {
  const auto from = channels_.find(in.fd);
  // A process may change its user.
  if (from == channels_.end() || channel.peer().process == 0 ||
      from->second->peer().process != channel.peer().process ||
      from->second->peer().uid != channel.peer().uid) {
    return absl::InvalidArgumentError("no such channel");
  }
  CmId* id = manager_.ids().Find(*from->second, in.id);
  if (id == nullptr) return absl::NotFoundError("no such identifier");
  out.events_reported = manager_.Migrate(*id, channel);
  return absl::OkStatus();
}

absl::Status Server::BindTo(CmId& id, AddressBytes address) {
  const absl::StatusOr<SocketAddress> to = Load(address);
  return to.ok() ? manager_.bindings().Bind(id, *to) : to.status();
}

absl::Status Server::Resolve(CmId& id, AddressBytes source, AddressBytes destination,
                             uint32_t timeout_ms) {
  const absl::StatusOr<SocketAddress> to = Load(destination);
  if (!to.ok()) return to.status();
  if (!HasFamily(source)) return manager_.resolution().Resolve(id, nullptr, *to, timeout_ms);
  const absl::StatusOr<SocketAddress> from = Load(source);
  return from.ok() ? manager_.resolution().Resolve(id, &*from, *to, timeout_ms) : from.status();
}

absl::Status Server::Join(CmId& id, uint64_t uid, AddressBytes group, uint32_t flags,
                          rdma_ucm_create_id_resp& out) {
  const absl::StatusOr<SocketAddress> address = Load(group);
  if (!address.ok()) return address.status();
  if (flags >= RDMA_MC_JOIN_FLAG_RESERVED) return absl::InvalidArgumentError("unknown flags");
  const absl::StatusOr<uint32_t> number = manager_.memberships().Join(
      id, uid, *address, flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
  if (number.ok()) out.id = *number;
  return number.status();
}

}  // namespace roci::control::cm
