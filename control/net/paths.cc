#include "control/net/paths.h"

#include <cerrno>
#include <cstring>

#include "control/loop/errno_status.h"
#include "roce/packet.h"

namespace roci::control {
namespace {

absl::Status CheckAttr(const AddressTable& addresses, const roci_abi_ah_attr& attr,
                       const roce::Gid& destination) {
  if (attr.port != 1) return absl::InvalidArgumentError("there is only port 1");
  if (!attr.is_global) return absl::InvalidArgumentError("RoCE needs a global address");
  const InterfaceAddress* source = addresses.At(attr.sgid_index);
  if (source == nullptr) return absl::InvalidArgumentError("source GID index");
  if (destination.IsZero()) return absl::InvalidArgumentError("destination GID");
  if (source->gid.IsIpv4() != destination.IsIpv4()) {
    return absl::InvalidArgumentError("source and destination GID are of different families");
  }
  return absl::OkStatus();
}

// The tag's priority is the service level, as with hardware adapters; service level 0 selects the
// priority of the traffic class. Levels above 7 count as 0: ibv_init_ah_from_wc copies the service
// level from a completion, where it holds the network header type (roce/responder_execute_inl.h).
uint16_t TagControl(const AddressTable& addresses, uint16_t vlan, const roci_abi_ah_attr& attr) {
  const uint8_t level = attr.sl <= 7 ? attr.sl : 0;
  const uint32_t priority = level != 0 ? level : addresses.PriorityIn(vlan, attr.traffic_class);
  return static_cast<uint16_t>(vlan | priority << roce::VlanTag::kPriorityShift);
}

// Senders say whether they are ECN-capable; only the network marks congestion (RFC 3168, 5).
uint8_t WithoutMark(uint8_t traffic_class) {
  const bool is_marked = (traffic_class & roce::kEcnMask) == roce::kEcnCongestionExperienced;
  return static_cast<uint8_t>(is_marked ? traffic_class & ~roce::kEcnMask : traffic_class);
}

}  // namespace

absl::StatusOr<PathPlan> PlanPath(const AddressTable& addresses, const roci_abi_ah_attr& attr,
                                  roce::Qpn local, roce::Qpn remote) {
  roce::Gid destination;
  std::memcpy(destination.bytes.data(), attr.dgid, sizeof(attr.dgid));
  const absl::Status status = CheckAttr(addresses, attr, destination);
  if (!status.ok()) return status;
  PathPlan plan;
  roce::Path& path = plan.path;
  path.src_mac = addresses.mac();
  const InterfaceAddress& source = *addresses.At(attr.sgid_index);
  path.src_gid = source.gid;
  path.has_vlan = source.vlan != 0;
  path.vlan_tci = TagControl(addresses, source.vlan, attr);
  path.dst_gid = destination;
  // Programs set 0 and 1 for InfiniBand; Linux then takes the route's.
  path.hop_limit = attr.hop_limit > 1 ? attr.hop_limit : roce::kDefaultHopLimit;
  path.traffic_class = WithoutMark(attr.traffic_class);
  path.flow_label = attr.flow_label & 0xFFFFF;
  path.udp_src_port = remote.value() != 0
                          ? roce::UdpSourcePort(path.flow_label, local, remote)
                          : roce::UdpSourcePort(path.flow_label, source.gid, destination);
  if (destination.IsMulticast()) {
    path.dst_mac = MulticastMac(destination);
    plan.resolved = true;
    return plan;
  }
  const std::optional<roce::Gid> next_hop = addresses.NextHop({destination, source.vlan});
  if (!next_hop) return StatusFromErrno(ENETUNREACH, "destination");
  plan.next_hop = *next_hop;
  return plan;
}

}  // namespace roci::control
