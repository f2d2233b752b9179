// The addresses of one device: its GID table and who is a neighbour. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/ip_text.h"
#include "roce/types.h"

namespace roci::control {

class AddressTable {
 public:
  static constexpr uint32_t kMostEntries = 64;

  // The GID table is dense and holds RoCE v2 entries only: 0 the link-local address of `mac`, then
  // IPv4 addresses in the given order, then IPv6 ones. Doubles are dropped.
  AddressTable(const roce::Mac& mac, std::span<const InterfaceAddress> addresses,
               std::optional<roce::Gid> gateway4, std::optional<roce::Gid> gateway6);

  // Entries keep their indices. Returns that of the new one: the lowest that is free.
  // AlreadyExists; ResourceExhausted.
  absl::StatusOr<uint32_t> Add(const InterfaceAddress& address);
  // An entry between others gives its place to the link-local address once more, so that the table
  // stays dense. NotFound; FailedPrecondition: the link-local address stays.
  absl::Status Remove(const roce::Gid& gid);

  const roce::Mac& mac() const { return mac_; }
  // In the order of the GID table.
  std::span<const InterfaceAddress> entries() const { return entries_; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // Null where `index` is beyond the table.
  const roce::Gid* At(uint32_t index) const {
    return index < entries_.size() ? &entries_[index].gid : nullptr;
  }
  bool IsOwn(const roce::Gid& gid) const;
  // Of the first entry with this address.
  std::optional<uint32_t> IndexOf(const roce::Gid& gid) const;
  // Nobody has put an address there.
  bool IsFree(uint32_t index) const { return index != 0 && entries_[index] == entries_[0]; }
  // One of our addresses has `gid`'s IPv6 solicited-node multicast group (RFC 4291, 2.7.1).
  bool HasSolicitedNode(const roce::Gid& group) const;

  // Whose MAC a packet to the unicast address `destination` needs: its own for a neighbour, the
  // gateway's otherwise (which must be in one of our networks). Nothing: no route.
  std::optional<roce::Gid> NextHop(const roce::Gid& destination) const;

 private:
  roce::Mac mac_;
  std::vector<InterfaceAddress> entries_;
  std::optional<roce::Gid> gateway4_;
  std::optional<roce::Gid> gateway6_;
};

// ff02::1:ffXX:XXXX of an IPv6 address.
roce::Gid SolicitedNodeGroup(const roce::Gid& gid);
// The Ethernet group of an IP multicast address (RFC 1112, 6.4; RFC 2464, 7).
roce::Mac MulticastMac(const roce::Gid& group);

}  // namespace roci::control
