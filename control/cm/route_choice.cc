#include "control/cm/route_choice.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

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
  if (!port.is_plugged()) return false;
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

// A wildcard destination is the device itself, as in Linux.
absl::Status ChooseOwnAddress(const Ports& ports, CmId& id) {
  for (const std::unique_ptr<Port>& port : ports) {
    if (id.port == nullptr && port->is_plugged()) id.port = port.get();
  }
  if (id.port == nullptr) return StatusFromErrno(ENODEV, "no device");
  const AddressTable& addresses = id.port->device.addresses();
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    const InterfaceAddress& own = *addresses.At(i);
    if (addresses.IsFree(i) || (own.vlan != 0 && !id.destination.IsAny())) continue;
    if (own.gid.IsIpv4() == (id.destination.family == AF_INET)) id.destination.gid = own.gid;
  }
  return id.destination.IsAny() ? StatusFromErrno(EADDRNOTAVAIL, "destination") : absl::OkStatus();
}

// The device for packets to `to`: itself, else one of its network, else one with a route. Null:
// none.
Port* ChoosePort(const Ports& ports, const roce::Gid& to) {
  if (to.IsMulticast()) {
    for (const std::unique_ptr<Port>& port : ports) {
      if (port->is_plugged() && SourceIndex(port->device.addresses(), to).has_value()) {
        return port.get();
      }
    }
  }
  if (Port* const itself = PortOf(ports, to)) return itself;
  for (const bool neighbours_only : {true, false}) {
    for (const std::unique_ptr<Port>& port : ports) {
      if (Reaches(*port, to) && (!neighbours_only || IsNeighbour(*port, to))) return port.get();
    }
  }
  return nullptr;
}

}  // namespace

absl::Status ChooseRoute(const Ports& ports, CmId& id) {
  if (id.destination.IsAny()) {
    const absl::Status status = ChooseOwnAddress(ports, id);
    if (!status.ok()) return status;
  }
  const roce::Gid& to = id.destination.gid;
  if (id.port == nullptr) id.port = ChoosePort(ports, to);
  if (id.port == nullptr) return StatusFromErrno(ENETUNREACH, "no route to the destination");
  if (!id.source.IsAny()) return absl::OkStatus();
  const std::optional<uint32_t> index = SourceIndex(id.port->device.addresses(), to);
  if (!index) return StatusFromErrno(ENETUNREACH, "no source address");
  id.gid_index = *index;
  return absl::OkStatus();
}

}  // namespace roci::control::cm
