#include "control/addresses.h"

#include <algorithm>

namespace roci::control {

AddressTable::AddressTable(const roce::Mac& mac, std::span<const InterfaceAddress> addresses,
                           std::optional<roce::Gid> gateway4, std::optional<roce::Gid> gateway6)
    : mac_(mac), gateway4_(gateway4), gateway6_(gateway6) {
  entries_.push_back({LinkLocal(mac), 64});
  for (const bool want_ipv4 : {true, false}) {
    for (const InterfaceAddress& address : addresses) {
      if (address.gid.IsIpv4() == want_ipv4 && !IsOwn(address.gid)) entries_.push_back(address);
    }
  }
}

bool AddressTable::IsOwn(const roce::Gid& gid) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const InterfaceAddress& entry) { return entry.gid == gid; });
}

bool AddressTable::HasSolicitedNode(const roce::Gid& group) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const InterfaceAddress& entry) {
    return !entry.gid.IsIpv4() && SolicitedNodeGroup(entry.gid) == group;
  });
}

std::optional<roce::Gid> AddressTable::NextHop(const roce::Gid& destination) const {
  for (const InterfaceAddress& entry : entries_) {
    if (SameNetwork(entry, destination)) return destination;
  }
  return destination.IsIpv4() ? gateway4_ : gateway6_;
}

roce::Gid SolicitedNodeGroup(const roce::Gid& gid) {
  roce::Gid group;
  group.bytes = {0xFF,         2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, gid.bytes[13], gid.bytes[14],
                 gid.bytes[15]};
  return group;
}

roce::Mac MulticastMac(const roce::Gid& group) {
  const auto& b = group.bytes;
  if (group.IsIpv4()) {
    return {{0x01, 0x00, 0x5E, static_cast<uint8_t>(b[13] & 0x7F), b[14], b[15]}};
  }
  return {{0x33, 0x33, b[12], b[13], b[14], b[15]}};
}

}  // namespace roci::control
