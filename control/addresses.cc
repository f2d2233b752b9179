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

absl::StatusOr<uint32_t> AddressTable::Add(const InterfaceAddress& address) {
  if (IsOwn(address.gid)) return absl::AlreadyExistsError("the device has this address");
  uint32_t index = 1;
  while (index < size() && !IsFree(index)) ++index;
  if (index >= kMostEntries) return absl::ResourceExhaustedError("the GID table is full");
  if (index == size()) entries_.emplace_back();
  entries_[index] = address;
  return index;
}

absl::Status AddressTable::Remove(const roce::Gid& gid) {
  const std::optional<uint32_t> index = IndexOf(gid);
  if (!index) return absl::NotFoundError("the device does not have this address");
  if (*index == 0) return absl::FailedPreconditionError("the link-local address stays");
  entries_[*index] = entries_[0];
  while (IsFree(size() - 1)) entries_.pop_back();
  return absl::OkStatus();
}

std::optional<uint32_t> AddressTable::IndexOf(const roce::Gid& gid) const {
  for (uint32_t i = 0; i < size(); ++i) {
    if (entries_[i].gid == gid) return i;
  }
  return std::nullopt;
}

bool AddressTable::IsOwn(const roce::Gid& gid) const { return IndexOf(gid).has_value(); }

bool AddressTable::HasSolicitedNode(const roce::Gid& group) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const InterfaceAddress& entry) {
    return !entry.gid.IsIpv4() && SolicitedNodeGroup(entry.gid) == group;
  });
}

std::optional<roce::Gid> AddressTable::NextHop(const roce::Gid& destination) const {
  for (const InterfaceAddress& entry : entries_) {
    if (SameNetwork(entry, destination)) return destination;
  }
  const std::optional<roce::Gid>& gateway = destination.IsIpv4() ? gateway4_ : gateway6_;
  const bool is_near =
      gateway && std::any_of(entries_.begin(), entries_.end(), [&](const InterfaceAddress& entry) {
        return SameNetwork(entry, *gateway);
      });
  return is_near ? gateway : std::nullopt;
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
