// The manager's addresses: binding to one, choosing the device and the source for a destination,
// resolving its address and route.

#include <algorithm>
#include <cerrno>

#include "control/cm/gsi.h"
#include "control/cm/manager.h"
#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"
#include "control/loop/program_name.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

// Of a port space in PortQuotas.
size_t IndexOf(PortSpace space) {
  switch (space) {
    case PortSpace::kTcp:
      return 0;
    case PortSpace::kUdp:
      return 1;
    case PortSpace::kIpoib:
      return 2;
    case PortSpace::kIb:
      break;
  }
  return 3;
}

// Index in the GID table of the source address for packets to `destination`: an address in its
// network, else one in the network of the gateway to it, else any with a route.
std::optional<uint32_t> SourceIndex(const AddressTable& addresses, const roce::Gid& destination) {
  std::optional<uint32_t> of_gateway, any;
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    const InterfaceAddress& entry = addresses.entries()[i];
    if (entry.gid == destination || SameNetwork(entry, destination)) return i;
    const bool is_link_local = entry.gid == addresses.entries()[0].gid;
    if (is_link_local || entry.gid.IsIpv4() != destination.IsIpv4()) continue;
    const std::optional<roce::Gid> hop =
        destination.IsMulticast() ? destination : addresses.NextHop({destination, entry.vlan});
    if (!any && hop) any = i;
    if (!of_gateway && hop && SameNetwork(entry, *hop)) of_gateway = i;
  }
  return of_gateway ? of_gateway : any;
}

bool Reaches(const Port& port, const roce::Gid& destination) {
  const AddressTable& addresses = port.device.addresses();
  const std::optional<uint32_t> source = SourceIndex(addresses, destination);
  return source && addresses.NextHop({destination, addresses.At(*source)->vlan}).has_value();
}

bool IsNeighbour(const Port& port, const roce::Gid& destination) {
  const auto entries = port.device.addresses().entries();
  return std::any_of(entries.begin(), entries.end(), [&](const InterfaceAddress& entry) {
    return SameNetwork(entry, destination);
  });
}

}  // namespace

Port* Manager::PortOf(const roce::Gid& own_address) const {
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port->device.addresses().IndexInAnyVlan(own_address)) return port.get();
  }
  return nullptr;
}

absl::Status Manager::Bind(CmId& id, const SocketAddress& address) {
  if (id.state != IdState::kIdle) return Invalid("already bound");
  Port* port = nullptr;
  if (!address.IsAny()) {
    port = PortOf(address.gid);
    if (port == nullptr) return StatusFromErrno(EADDRNOTAVAIL, "address");
  }
  id.port_space = id.space;
  if (address.family == AF_IB) {
    const auto space = PortSpaceOfService(id.space, address.service, address.service_mask);
    if (!space) return StatusFromErrno(EPROTONOSUPPORT, "service ID");
    id.port_space = *space;
  }
  const bool is_privileged = address.port != 0 && address.port < kFirstFreePort;
  if (is_privileged && !id.channel->MayBindPrivilegedPorts()) {
    return StatusFromErrno(EACCES, "port");
  }
  id.source = address;
  const absl::Status status = TakePort(id);
  if (!status.ok()) {
    id.source = {};
    return status;
  }
  if (address.family == AF_IB) {
    id.source.service = ServiceIdOf({id.port_space, id.source.port});
    id.source.service_mask = ~uint64_t{0};
  }
  id.port = port;
  id.bound = port;
  if (port != nullptr) {
    id.gid_index = *port->device.addresses().IndexInAnyVlan(address.gid);
    id.vlan = port->device.addresses().At(id.gid_index)->vlan;
  }
  id.state = IdState::kBound;
  return absl::OkStatus();
}

absl::Status Manager::TakePort(CmId& id) {
  const uint16_t port = id.source.port;
  if (port == 0 ||
      (port >= SharedQuotas::kFirstChosenPort && port <= SharedQuotas::kLastChosenPort)) {
    const std::shared_ptr<User>& user = id.channel->shared_user();
    id.port_share = UserShare(user, user->ports[IndexOf(id.port_space)], 1);
    if (!id.port_share.ok()) return StatusFromErrno(EADDRNOTAVAIL, "ports of the user");
  }
  const absl::Status status = port_table_.Take(id, random_.Next());
  if (!status.ok()) id.port_share = UserShare();
  return status;
}

// Chooses the device and the source address for id.destination.
absl::Status Manager::ChooseRoute(CmId& id) {
  roce::Gid& to = id.destination.gid;
  if (id.destination.IsAny()) {
    // A wildcard destination is the device itself, as in Linux.
    if (id.port == nullptr) id.port = ports_.empty() ? nullptr : ports_.front().get();
    if (id.port == nullptr) return StatusFromErrno(ENODEV, "no device");
    const AddressTable& addresses = id.port->device.addresses();
    for (uint32_t i = 0; i < addresses.size(); ++i) {
      const InterfaceAddress& own = *addresses.At(i);
      if (addresses.IsFree(i) || (own.vlan != 0 && !id.destination.IsAny())) continue;
      if (own.gid.IsIpv4() == (id.destination.family == AF_INET)) to = own.gid;
    }
    if (id.destination.IsAny()) return StatusFromErrno(EADDRNOTAVAIL, "destination");
  }
  if (to.IsMulticast() && id.port == nullptr) {
    for (const std::unique_ptr<Port>& port : ports_) {
      if (SourceIndex(port->device.addresses(), to).has_value()) {
        id.port = port.get();
        break;
      }
    }
  }
  if (id.port == nullptr) id.port = PortOf(to);
  for (const bool neighbours_only : {true, false}) {
    for (const std::unique_ptr<Port>& port : ports_) {
      if (id.port == nullptr && Reaches(*port, to) &&
          (!neighbours_only || IsNeighbour(*port, to))) {
        id.port = port.get();
      }
    }
  }
  if (id.port == nullptr) return StatusFromErrno(ENETUNREACH, "destination");
  if (!id.source.IsAny()) return absl::OkStatus();
  const std::optional<uint32_t> index = SourceIndex(id.port->device.addresses(), to);
  if (!index) return StatusFromErrno(ENETUNREACH, "no source address");
  id.gid_index = *index;
  return absl::OkStatus();
}

absl::Status Manager::ResolveAddress(CmId& id, const SocketAddress* source,
                                     const SocketAddress& destination, uint32_t timeout_ms) {
  if (id.state != IdState::kIdle && id.state != IdState::kBound) return Invalid("state");
  if (id.channel->is_full())
    return absl::ResourceExhaustedError("too many events wait in the channel");
  if (id.state == IdState::kIdle) {
    const absl::Status status =
        Bind(id, source != nullptr ? *source : AnyAddress(destination.family));
    if (!status.ok()) return status;
  }
  if (id.source.family != destination.family) return Invalid("families differ");
  id.destination = destination;
  absl::Status status = ChooseRoute(id);
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
      [this, number](const absl::StatusOr<roce::Path>& found) { AddressKnown(number, found); },
      id.path_wait);
  if (!path.ok()) {
    ForgetDestination(id);
    return path.status();
  }
  id.state = IdState::kAddressQuery;
  if (path->has_value()) {
    AddressKnown(number, **path);
    return absl::OkStatus();
  }
  id.resolve_deadline = MonotonicNow() + timeout_ms * roce::kNsPerMs;
  resolves_.insert({id.resolve_deadline, number});
  return absl::OkStatus();
}

// Undoes a failed attempt: another destination may be reached through another device.
void Manager::ForgetDestination(CmId& id) {
  id.destination = {};
  id.port = id.bound;
}

void Manager::EndResolve(CmId& id) {
  if (id.resolve_deadline != roce::kNever) resolves_.erase({id.resolve_deadline, id.number});
  id.resolve_deadline = roce::kNever;
  if (id.path_wait != 0) id.port->device.CancelPath(id.path_wait);
  id.path_wait = 0;
}

void Manager::RefuseAddress(CmId& id, int error) {
  ForgetDestination(id);
  id.state = IdState::kBound;
  PostSimple(id, ROCI_ABI_CM_EVENT_ADDR_ERROR, -error);
}

void Manager::AddressKnown(uint32_t number, const absl::StatusOr<roce::Path>& path) {
  CmId* id = Get(number);
  if (id == nullptr) return;
  id->path_wait = 0;  // the resolution has ended, nothing to cancel
  EndResolve(*id);
  if (!path.ok()) return RefuseAddress(*id, ErrnoOf(path.status()));
  id->path = *path;
  id->vlan = path->vlan();
  if (id->source.family == AF_IB) {
    id->source.gid = path->src_gid;
  } else {
    id->source = AddressFromGid(path->src_gid, id->source.port);
  }
  id->state = IdState::kAddressResolved;
  PostSimple(*id, ROCI_ABI_CM_EVENT_ADDR_RESOLVED);
}

absl::Status Manager::ResolveRoute(CmId& id) {
  if (id.state != IdState::kAddressResolved) return Invalid("no address is resolved");
  if (const int error = InjectedError(id, RDMA_USER_CM_CMD_RESOLVE_ROUTE)) {
    PostSimple(id, ROCI_ABI_CM_EVENT_ROUTE_ERROR, -error);
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
  PostSimple(id, ROCI_ABI_CM_EVENT_ROUTE_RESOLVED);
  return absl::OkStatus();
}

int Manager::InjectedError(const CmId& id, uint32_t command) {
  CallFaults& faults = id.port->device.call_faults();
  if (faults.all().empty()) return 0;
  const pid_t pid = id.channel->peer().pid;
  return faults
      .Apply(OfConnectionManager(command), ProgramName(pid), MonotonicNow(),
             static_cast<uint32_t>(pid))
      .error;
}

}  // namespace roci::control::cm
