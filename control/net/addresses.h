// The addresses of one device: its GID table, its VLANs, who is a neighbour, and which gateway
// leads to others. Pure.
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
#include "roce/types.h"

namespace roci::control {

inline constexpr uint16_t kMaxVlan = 4094;  // IEEE 802.1Q, table 9-2

// What Linux calls the priority of a packet: follows from its type of service (tc-prio(8)).
inline constexpr uint8_t kPriorities = 8;
uint8_t PriorityOfTypeOfService(uint8_t type_of_service);

// A VLAN on a device.
struct VlanSettings {
  uint16_t id = 0;  // 1 .. kMaxVlan
  std::vector<InterfaceAddress> addresses;
  std::optional<roce::Gid> gateway4;
  std::optional<roce::Gid> gateway6;
  std::vector<Route> routes;
  // The priority code point of a tag by the packet's priority, as ip-link(8)'s egress-qos-map.
  std::array<uint8_t, kPriorities> egress_qos_map{};
};

class AddressTable {
 public:
  static constexpr uint32_t kMostEntries = 64;
  static constexpr uint32_t kMostRoutes = 64;  // in all VLANs, default ones too

  // The GID table is dense and holds RoCE v2 entries only: 0 the link-local address of `mac`, then
  // IPv4 addresses in the given order, then IPv6 ones. The same follows for every VLAN. Doubles
  // within a network are dropped. A gateway is a default route.
  AddressTable(const roce::Mac& mac, std::span<const InterfaceAddress> addresses,
               std::optional<roce::Gid> gateway4, std::optional<roce::Gid> gateway6,
               std::span<const VlanSettings> vlans = {}, std::span<const Route> routes = {});

  // Entries keep their indices. Returns that of the new one: the lowest that is free. The first
  // address of a VLAN brings the VLAN's link-local one. AlreadyExists; ResourceExhausted.
  absl::StatusOr<uint32_t> Add(const InterfaceAddress& address);
  // An entry between others gives its place to the link-local address once more, so that the table
  // stays dense. The last address of a VLAN that was not there from the start takes the VLAN with
  // it, and the VLAN its routes. NotFound; FailedPrecondition: a link-local address stays.
  absl::Status Remove(const roce::NetAddress& address);

  // InvalidArgument: its gateway is no neighbour. NotFound: its VLAN is not there. AlreadyExists;
  // ResourceExhausted.
  absl::Status AddRoute(const Route& route);
  // Only the one by `gateway`, if that is given. NotFound.
  absl::Status RemoveRoute(const InterfaceAddress& network,
                           const std::optional<roce::Gid>& gateway);
  // The longest prefixes of each VLAN and family first.
  std::span<const Route> routes() const { return routes_; }
  // Its gateway is a neighbour. (An address that makes it one may be removed, and come back.)
  bool IsUsable(const Route& route) const;

  const roce::Mac& mac() const { return mac_; }
  // In the order of the GID table.
  std::span<const InterfaceAddress> entries() const { return entries_; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // Null where `index` is beyond the table.
  const InterfaceAddress* At(uint32_t index) const {
    return index < entries_.size() ? &entries_[index] : nullptr;
  }
  bool IsOwn(const roce::NetAddress& address) const;
  // Of the first entry with this address.
  std::optional<uint32_t> IndexOf(const roce::NetAddress& address) const;
  // Of the first entry with this address in any VLAN, one without a VLAN before others.
  std::optional<uint32_t> IndexInAnyVlan(const roce::Gid& gid) const;
  // Nobody has put an address there.
  bool IsFree(uint32_t index) const { return index != 0 && entries_[index] == entries_[0]; }
  // 0, for frames without a tag, and those of the device's VLANs.
  std::vector<uint16_t> Vlans() const;
  bool HasVlan(uint16_t vlan) const { return FindNetwork(vlan) != nullptr; }
  // One of our addresses has IPv6's solicited-node multicast group (RFC 4291, 2.7.1) `group`.
  bool HasSolicitedNode(const roce::NetAddress& group) const;

  // Whose MAC a packet to the unicast address `destination` needs: its own, or the gateway's of a
  // route that is usable. The longest prefix decides among our networks and routes (RFC 1812,
  // 5.2.4.3); our network where both have the same. Nothing: no route.
  std::optional<roce::Gid> NextHop(const roce::NetAddress& destination) const;
  // The priority code point of frames in `vlan` whose packets have this type of service.
  uint8_t PriorityIn(uint16_t vlan, uint8_t type_of_service) const;

 private:
  struct Network {
    uint16_t vlan = 0;
    bool stays = false;  // without addresses of its own
    std::array<uint8_t, kPriorities> egress_qos_map{};
  };
  void AddInitial(const VlanSettings& settings);
  void AddInitialRoutes(const VlanSettings& settings);
  const Network* FindNetwork(uint16_t vlan) const;
  // The longest prefix of our networks that has `destination`.
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
// The Ethernet group of an IP multicast address (RFC 1112, 6.4; RFC 2464, 7).
roce::Mac MulticastMac(const roce::Gid& group);

}  // namespace roci::control
