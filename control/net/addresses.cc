#include "control/net/addresses.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace roci::control {
namespace {

constexpr uint8_t kLinkLocalPrefixLength = 64;  // RFC 4291, 2.5.6

uint32_t EntryCount(std::span<const InterfaceAddress> entries, uint16_t vlan) {
  return static_cast<uint32_t>(
      std::count_if(entries.begin(), entries.end(),
                    [vlan](const InterfaceAddress& entry) { return entry.vlan == vlan; }));
}

}  // namespace

uint8_t PriorityOfTypeOfService(uint8_t type_of_service) {
  constexpr uint8_t kBestEffort = 0;
  constexpr uint8_t kBulk = 2;
  constexpr uint8_t kInteractiveBulk = 4;
  constexpr uint8_t kInteractive = 6;
  constexpr uint8_t kOfTwoBits[] = {kBestEffort, kBulk, kInteractive, kInteractiveBulk};
  return kOfTwoBits[type_of_service >> 3 & 3];
}

AddressTable::AddressTable(const roce::Mac& mac, std::span<const InterfaceAddress> addresses,
                           std::optional<roce::Gid> gateway4, std::optional<roce::Gid> gateway6,
                           std::span<const VlanSettings> vlans, std::span<const Route> routes)
    : mac_(mac) {
  VlanSettings untagged;
  untagged.addresses.assign(addresses.begin(), addresses.end());
  untagged.gateway4 = gateway4;
  untagged.gateway6 = gateway6;
  untagged.routes.assign(routes.begin(), routes.end());
  AddInitial(untagged);
  for (const VlanSettings& vlan : vlans) AddInitial(vlan);
}

void AddressTable::AddInitial(const VlanSettings& settings) {
  Network& network = networks_.emplace_back();
  network.vlan = settings.id;
  network.stays = true;
  network.egress_qos_map = settings.egress_qos_map;
  entries_.push_back({LinkLocal(mac_), kLinkLocalPrefixLength, settings.id});
  for (const bool want_ipv4 : {true, false}) {
    for (InterfaceAddress address : settings.addresses) {
      address.vlan = settings.id;
      if (address.gid.IsIpv4() == want_ipv4 && !IsOwn(address.net())) entries_.push_back(address);
    }
  }
  AddInitialRoutes(settings);
}

void AddressTable::AddInitialRoutes(const VlanSettings& settings) {
  for (const std::optional<roce::Gid>& gateway : {settings.gateway4, settings.gateway6}) {
    if (gateway) InsertRoute(DefaultRoute(*gateway, settings.id));
  }
  for (Route route : settings.routes) {
    route.network.vlan = settings.id;
    InsertRoute(route);
  }
}

const AddressTable::Network* AddressTable::FindNetwork(uint16_t vlan) const {
  for (const Network& network : networks_) {
    if (network.vlan == vlan) return &network;
  }
  return nullptr;
}

uint32_t AddressTable::FirstFree() const {
  uint32_t index = 1;
  while (index < size() && !IsFree(index)) ++index;
  return index;
}

void AddressTable::Put(uint32_t index, const InterfaceAddress& address) {
  if (index == size()) entries_.emplace_back();
  entries_[index] = address;
}

void AddressTable::Clear(uint32_t index) {
  entries_[index] = entries_[0];
  while (IsFree(size() - 1)) entries_.pop_back();
}

absl::StatusOr<uint32_t> AddressTable::Add(const InterfaceAddress& address) {
  if (IsOwn(address.net())) return absl::AlreadyExistsError("the device has this address");
  const InterfaceAddress link_local{LinkLocal(mac_), kLinkLocalPrefixLength, address.vlan};
  const bool is_new_vlan = !HasVlan(address.vlan);
  uint32_t free = kMostEntries - size();
  for (uint32_t i = 1; i < size(); ++i) free += IsFree(i);
  if (free < (is_new_vlan ? 2u : 1u)) return absl::ResourceExhaustedError("the GID table is full");
  if (is_new_vlan) {
    networks_.emplace_back().vlan = address.vlan;
    Put(FirstFree(), link_local);
    if (address.net() == link_local.net()) return *IndexOf(address.net());
  }
  const uint32_t index = FirstFree();
  Put(index, address);
  return index;
}

absl::Status AddressTable::Remove(const roce::NetAddress& address) {
  const std::optional<uint32_t> index = IndexOf(address);
  if (!index) return absl::NotFoundError("the device does not have this address");
  const Network network = *FindNetwork(address.vlan);
  const bool is_last = EntryCount(entries_, network.vlan) == 1 && !network.stays;
  if (address.gid == LinkLocal(mac_) && !is_last) {
    return absl::FailedPreconditionError("the link-local address cannot be removed");
  }
  Clear(*index);
  if (network.stays || EntryCount(entries_, network.vlan) > 1) return absl::OkStatus();
  if (const auto link_local = IndexOf({LinkLocal(mac_), network.vlan})) Clear(*link_local);
  std::erase_if(networks_, [&](const Network& each) { return each.vlan == network.vlan; });
  std::erase_if(routes_, [&](const Route& each) { return each.network.vlan == network.vlan; });
  return absl::OkStatus();
}

std::optional<uint32_t> AddressTable::IndexOf(const roce::NetAddress& address) const {
  for (uint32_t i = 0; i < size(); ++i) {
    if (entries_[i].net() == address) return i;
  }
  return std::nullopt;
}

std::optional<uint32_t> AddressTable::IndexInAnyVlan(const roce::Gid& gid) const {
  if (const auto index = IndexOf({gid, 0})) return index;
  for (uint32_t i = 0; i < size(); ++i) {
    if (entries_[i].gid == gid) return i;
  }
  return std::nullopt;
}

bool AddressTable::IsOwn(const roce::NetAddress& address) const {
  return IndexOf(address).has_value();
}

std::vector<uint16_t> AddressTable::Vlans() const {
  std::vector<uint16_t> out;
  for (const Network& network : networks_) out.push_back(network.vlan);
  return out;
}

bool AddressTable::HasSolicitedNode(const roce::NetAddress& group) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const InterfaceAddress& entry) {
    return entry.vlan == group.vlan && !entry.gid.IsIpv4() &&
           SolicitedNodeGroup(entry.gid) == group.gid;
  });
}

void AddressTable::InsertRoute(const Route& route) {
  routes_.insert(std::upper_bound(routes_.begin(), routes_.end(), route, ComesBefore), route);
}

absl::Status AddressTable::AddRoute(const Route& route) {
  if (!HasVlan(route.network.vlan)) {
    return absl::NotFoundError(absl::StrCat("the device has no VLAN ", route.network.vlan));
  }
  for (const Route& other : routes_) {
    if (other.network != route.network) continue;
    return absl::AlreadyExistsError(absl::StrCat("the route exists, via ", IpText(other.gateway)));
  }
  const std::string fault = RouteFault(route, entries_);
  if (!fault.empty()) return absl::InvalidArgumentError(fault);
  if (routes_.size() >= kMostRoutes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has ", kMostRoutes, " routes, which is the limit"));
  }
  InsertRoute(route);
  return absl::OkStatus();
}

absl::Status AddressTable::RemoveRoute(const InterfaceAddress& network,
                                       const std::optional<roce::Gid>& gateway) {
  const size_t removed = std::erase_if(routes_, [&](const Route& route) {
    return route.network == network && (!gateway || route.gateway == *gateway);
  });
  return removed > 0 ? absl::OkStatus() : absl::NotFoundError("there is no such route");
}

std::optional<uint8_t> AddressTable::OwnPrefix(const roce::NetAddress& destination) const {
  std::optional<uint8_t> longest;
  for (const InterfaceAddress& entry : entries_) {
    if (entry.vlan != destination.vlan || !SameNetwork(entry, destination.gid)) continue;
    longest = std::max(longest.value_or(0), entry.prefix_length);
  }
  return longest;
}

bool AddressTable::IsUsable(const Route& route) const {
  const roce::NetAddress gateway{route.gateway, route.network.vlan};
  return OwnPrefix(gateway).has_value() && !IsOwn(gateway);
}

std::optional<roce::Gid> AddressTable::NextHop(const roce::NetAddress& destination) const {
  const std::optional<uint8_t> own = OwnPrefix(destination);
  if (own && IsOwn(destination)) return destination.gid;
  for (const Route& route : routes_) {  // the longest prefix first
    if (own && *own >= route.network.prefix_length) continue;
    if (route.network.vlan != destination.vlan) continue;
    if (SameNetwork(route.network, destination.gid) && IsUsable(route)) return route.gateway;
  }
  return own ? std::optional(destination.gid) : std::nullopt;
}

uint8_t AddressTable::PriorityIn(uint16_t vlan, uint8_t type_of_service) const {
  const Network* network = FindNetwork(vlan);
  return network == nullptr ? 0 : network->egress_qos_map[PriorityOfTypeOfService(type_of_service)];
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
