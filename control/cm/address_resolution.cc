#include "control/cm/address_resolution.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "control/cm/channel.h"
#include "control/cm/injected_error.h"
#include "control/cm/route_choice.h"
#include "control/loop/errno_status.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

// Undoes a failed attempt: another destination may be reached through another device.
void ForgetDestination(CmId& id) {
  id.destination = {};
  id.port = id.bound;
}

void RefuseAddress(CmId& id, int error) {
  ForgetDestination(id);
  id.state = IdState::kBound;
  id.Post(ROCI_ABI_CM_EVENT_ADDR_ERROR, -error);
}

}  // namespace

absl::Status AddressResolution::Resolve(CmId& id, const SocketAddress* source,
                                        const SocketAddress& destination, uint32_t timeout_ms) {
  if (id.state != IdState::kIdle && id.state != IdState::kBound)
    return Invalid("the identifier has a destination or listens");
  if (id.channel->is_full())
    return absl::ResourceExhaustedError("too many events wait in the channel");
  if (id.state == IdState::kIdle) {
    const absl::Status status =
        bindings_.Bind(id, source != nullptr ? *source : AnyAddress(destination.family));
    if (!status.ok()) return status;
  }
  if (id.source.family != destination.family) return Invalid("families differ");
  id.destination = destination;
  absl::Status status = ChooseRoute(ports_, id);
  if (!status.ok()) {
    ForgetDestination(id);
    return status;
  }
  if (const int error = InjectedError(id, RDMA_USER_CM_CMD_RESOLVE_ADDR)) {
    RefuseAddress(id, error);
    return absl::OkStatus();
  }
  roci_abi_ah_attr attr = {};
  std::memcpy(attr.dgid, id.destination.gid.bytes.data(), sizeof(attr.dgid));
  attr.sgid_index = static_cast<uint8_t>(id.gid_index);
  attr.is_global = 1;
  attr.port = 1;
  attr.traffic_class = id.type_of_service;
  const uint32_t number = id.number;
  absl::StatusOr<std::optional<roce::Path>> path = id.port->device.FindPath(
      attr, roce::kGsiQpn, roce::kGsiQpn, id.channel->shared_user(),
      [this, number](const absl::StatusOr<roce::Path>& found) { Finish(number, found); },
      id.path_wait);
  if (!path.ok()) {
    ForgetDestination(id);
    return path.status();
  }
  id.state = IdState::kAddressQuery;
  if (path->has_value()) {
    Finish(number, **path);
    return absl::OkStatus();
  }
  id.resolve_deadline = MonotonicNow() + timeout_ms * roce::kNsPerMs;
  deadlines_.insert({id.resolve_deadline, number});
  return absl::OkStatus();
}

void AddressResolution::HandleTimeout(roce::TimeNs now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint32_t number = deadlines_.begin()->second;
    CmId* id = ids_.Get(number);
    if (id->path_wait != 0) id->port->device.CancelPath(id->path_wait);
    Finish(number, absl::DeadlineExceededError("address resolution timed out"));
  }
}

void AddressResolution::End(CmId& id) {
  if (id.resolve_deadline != roce::kNever) deadlines_.erase({id.resolve_deadline, id.number});
  id.resolve_deadline = roce::kNever;
  if (id.path_wait != 0) id.port->device.CancelPath(id.path_wait);
  id.path_wait = 0;
}

void AddressResolution::Finish(uint32_t number, const absl::StatusOr<roce::Path>& path) {
  CmId* id = ids_.Get(number);
  if (id == nullptr) return;
  id->path_wait = 0;  // the resolution has ended, nothing to cancel
  End(*id);
  if (!path.ok()) return RefuseAddress(*id, ErrnoOf(path.status()));
  id->path = *path;
  id->vlan = path->vlan();
  if (id->source.family == AF_IB) {
    id->source.gid = path->src_gid;
  } else {
    id->source = AddressFromGid(path->src_gid, id->source.port);
  }
  id->state = IdState::kAddressResolved;
  id->Post(ROCI_ABI_CM_EVENT_ADDR_RESOLVED);
}

absl::Status ResolveRoute(CmId& id) {
  if (id.state != IdState::kAddressResolved) return Invalid("no address is resolved");
  if (const int error = InjectedError(id, RDMA_USER_CM_CMD_RESOLVE_ROUTE)) {
    id.Post(ROCI_ABI_CM_EVENT_ROUTE_ERROR, -error);
    return absl::OkStatus();
  }
  // The program may have changed the type of service since it resolved the address.
  id.path.traffic_class = id.type_of_service;
  if (id.path.has_vlan) {
    const AddressTable& addresses = id.port->device.addresses();
    const uint32_t priority = addresses.PriorityIn(id.vlan, id.type_of_service);
    id.path.vlan_tci = static_cast<uint16_t>(id.vlan | priority << roce::VlanTag::kPriorityShift);
  }
  id.state = IdState::kRouteResolved;
  id.Post(ROCI_ABI_CM_EVENT_ROUTE_RESOLVED);
  return absl::OkStatus();
}

}  // namespace roci::control::cm
