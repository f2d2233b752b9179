#include "control/cm/bindings.h"

#include <cerrno>

#include "control/cm/channel.h"
#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"

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

}  // namespace

absl::Status Bindings::Bind(CmId& id, const SocketAddress& address) {
  if (id.state != IdState::kIdle) return Invalid("already bound");
  Port* port = nullptr;
  if (!address.IsAny()) {
    port = PortOf(ports_, address.gid);
    if (port == nullptr) return StatusFromErrno(EADDRNOTAVAIL, "no device has the address");
  }
  id.port_space = id.space;
  if (address.family == AF_IB) {
    const auto space = PortSpaceOfService(id.space, address.service, address.service_mask);
    if (!space) return StatusFromErrno(EPROTONOSUPPORT, "unsupported service ID");
    id.port_space = *space;
  }
  const bool is_privileged = address.port != 0 && address.port < kFirstFreePort;
  if (is_privileged && !id.channel->MayBindPrivilegedPorts()) {
    return StatusFromErrno(EACCES, "privileged port");
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

absl::Status Bindings::TakePort(CmId& id) {
  const uint16_t port = id.source.port;
  if (port == 0 ||
      (port >= SharedQuotas::kFirstChosenPort && port <= SharedQuotas::kLastChosenPort)) {
    const std::shared_ptr<User>& user = id.channel->shared_user();
    id.port_share = UserShare(user, user->ports[IndexOf(id.port_space)], 1);
    if (!id.port_share.ok()) return StatusFromErrno(EADDRNOTAVAIL, "ports of the user");
  }
  const absl::Status status = table_.Take(id, random_.Next());
  if (!status.ok()) id.port_share = UserShare();
  return status;
}

absl::Status Bindings::Listen(CmId& id, uint32_t backlog) {
  if (id.state == IdState::kIdle) {
    const absl::Status status = Bind(id, AnyAddress(AF_INET));
    if (!status.ok()) return status;
  }
  if (id.state != IdState::kBound) return Invalid("the identifier has a destination or listens");
  if (id.reuse_address) {
    const absl::Status status = table_.CheckListen(id);
    if (!status.ok()) return status;
  }
  table_.Listen(id);
  id.backlog = backlog > 0 && backlog < kMaxBacklog ? backlog : kMaxBacklog;
  id.state = IdState::kListen;
  return absl::OkStatus();
}

// An exact address is preferred to a wildcard.
CmId* Bindings::FindListener(const Port& port, const IpService& service, const IpHeader& header,
                             uint16_t vlan) const {
  const auto family = static_cast<uint16_t>(header.destination.IsIpv4() ? AF_INET : AF_INET6);
  CmId* wildcard = nullptr;
  for (CmId* id : table_.Listeners(service.space, service.port)) {
    if (id->port != nullptr && id->port != &port) continue;
    if (id->source.gid == header.destination && id->source.family == family && id->vlan == vlan) {
      return id;
    }
    const bool any_family =
        id->source.family == family || (id->source.family == AF_INET6 && !id->family_only);
    if (id->source.IsAny() && any_family) wildcard = id;
  }
  return wildcard;
}

CmId* Bindings::FindServiceListener(const Port& port, const IpService& service,
                                    const roce::NetAddress& own) const {
  for (CmId* id : table_.Listeners(service.space, service.port)) {
    if (id->source.family != AF_IB || (id->port != nullptr && id->port != &port)) continue;
    if (id->source.IsAny() || roce::NetAddress{id->source.gid, id->vlan} == own) return id;
  }
  return nullptr;
}

}  // namespace roci::control::cm
