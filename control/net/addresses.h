// The addresses of one device: GID table, VLANs, routes, and the choice of the next hop. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/net/ip_text.h"
#include "control/net/routes.h"
#include "roce/headers.h"
#include "roce/types.h"

namespace roci::control {

// Linux's packet priority (0 to 7), derived from the type of service (tc-prio(8)).
inline constexpr uint8_t kPriorities = 8;
uint8_t PriorityOfTypeOfService(uint8_t type_of_service);

// A VLAN on a device.
struct VlanSettings {
  uint16_t id = 0;  // 1 .. roce::VlanTag::kMaxId
  std::vector<InterfaceAddress> addresses;
  std::optional<roce::Gid> gateway4;
  std::optional<roce::Gid> gateway6;
  std::vector<Route> routes;
  // Priority code point of the VLAN tag by packet priority; egress-qos-map of ip-link(8).
  std::array<uint8_t, kPriorities> egress_qos_map{};
};

class AddressTable {
 public:
  static constexpr uint32_t kMostEntries = 64;
  static constexpr uint32_t kMostRoutes = 64;  // in all VLANs, including default routes

  // The GID table is dense and holds RoCE v2 entries only. Entry 0 is the link-local address of
  // `mac`; the IPv4 addresses in the given order follow, then the IPv6 addresses, then the same for
  // every VLAN. Duplicates within a network are dropped. A gateway becomes a default route.
  AddressTable(const roce::Mac& mac, std::span<const InterfaceAddress> addresses,
               std::optional<roce::Gid> gateway4, std::optional<roce::Gid> gateway6,
               std::span<const VlanSettings> vlans = {}, std::span<const Route> routes = {});

  // Adds an entry at the lowest free index and returns the index; other entries keep theirs. The
  // first address of a VLAN also adds the VLAN's link-local address. AlreadyExists;
  // ResourceExhausted.
  absl::StatusOr<uint32_t> Add(const InterfaceAddress& address);
  // Removes an entry. A gap is filled with the link-local address, so that the table stays dense.
  // Removing the last address of a VLAN that was added at run time also removes the VLAN and its
  // routes. NotFound; FailedPrecondition: a link-local address cannot be removed alone.
  absl::Status Remove(const roce::NetAddress& address);

  // InvalidArgument: the gateway is not a neighbour. NotFound: no such VLAN. AlreadyExists;
  // ResourceExhausted.
  absl::Status AddRoute(const Route& route);
  // Removes the route to `network`; with `gateway` only if it is through this gateway. NotFound.
  absl::Status RemoveRoute(const InterfaceAddress& network,
                           const std::optional<roce::Gid>& gateway);
  // Sorted by VLAN and family, then the longest prefix first.
  std::span<const Route> routes() const { return routes_; }
  // Whether the gateway is a neighbour. (Removing an address can change that, adding it again too.)
  bool IsUsable(const Route& route) const;

  const roce::Mac& mac() const { return mac_; }
  // In the order of the GID table.
  std::span<const InterfaceAddress> entries() const { return entries_; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // Null: `index` is beyond the table.
  const InterfaceAddress* At(uint32_t index) const {
    return index < entries_.size() ? &entries_[index] : nullptr;
  }
  bool IsOwn(const roce::NetAddress& address) const;
  // The index of the first entry with this address.
  std::optional<uint32_t> IndexOf(const roce::NetAddress& address) const;
  // The same in any VLAN; an untagged entry comes before others.
  std::optional<uint32_t> IndexInAnyVlan(const roce::Gid& gid) const;
  // Whether the entry is a gap (see Remove).
  bool IsFree(uint32_t index) const { return index != 0 && entries_[index] == entries_[0]; }
  // 0 for untagged frames, and the IDs of the device's VLANs.
  std::vector<uint16_t> Vlans() const;
  bool HasVlan(uint16_t vlan) const { return FindNetwork(vlan) != nullptr; }
  // Whether `group` is the solicited-node multicast group (RFC 4291, 2.7.1) of one of our
  // addresses.
  bool HasSolicitedNode(const roce::NetAddress& group) const;

  // The next hop to the unicast address `destination`: the destination itself or the gateway of a
  // usable route. The longest prefix wins among our networks and the routes (RFC 1812, 5.2.4.3); a
  // network wins over a route of the same length. Nothing: no route.
  std::optional<roce::Gid> NextHop(const roce::NetAddress& destination) const;
  // The priority code point of frames in `vlan` for this type of service.
  uint8_t PriorityIn(uint16_t vlan, uint8_t type_of_service) const;

 private:
  struct Network {
    uint16_t vlan = 0;
    bool stays = false;  // kept when its last address is removed
    std::array<uint8_t, kPriorities> egress_qos_map{};
  };
  void AddInitial(const VlanSettings& settings);
  void AddInitialRoutes(const VlanSettings& settings);
  const Network* FindNetwork(uint16_t vlan) const;
  // The length of the longest prefix of our networks that contains `destination`.
  std::optional<uint8_t> OwnPrefix(const roce::NetAddress& destination) const;
  void InsertRoute(const Route& route);
  uint32_t FirstFree() const;
  void Put(uint32_t index, const InterfaceAddress& address);
  void Clear(uint32_t index);

  roce::Mac mac_;
  std::vector<InterfaceAddress> entries_;
  std::vector<Network> networks_;
  std::vector<Route> routes_;
};

// ff02::1:ffXX:XXXX of an IPv6 address.
roce::Gid SolicitedNodeGroup(const roce::Gid& gid);
// The Ethernet multicast address of an IP multicast address (RFC 1112, 6.4; RFC 2464, 7).
roce::Mac MulticastMac(const roce::Gid& group);

}  // namespace roci::control
