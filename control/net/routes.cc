#include "control/net/routes.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roci::control {
namespace {

// `address` with the bits after its prefix set to zero.
InterfaceAddress WholeNetwork(InterfaceAddress address) {
  const uint32_t first = address.prefix_length + (address.gid.IsIpv4() ? 96u : 0u);
  for (uint32_t bit = first; bit < 128; ++bit) {
    address.gid.bytes[bit / 8] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  }
  return address;
}

bool IsSameNetwork(const InterfaceAddress& network, const InterfaceAddress& address) {
  return network.vlan == address.vlan && network.prefix_length == address.prefix_length &&
         SameNetwork(network, address.gid);
}

}  // namespace

Route DefaultRoute(const roce::Gid& gateway, uint16_t vlan) {
  return {WholeNetwork({gateway, 0, vlan}), gateway};
}

absl::StatusOr<InterfaceAddress> ParseNetwork(const std::string& text, bool default_is_ipv4) {
  if (text == "default")
    return ParseInterfaceAddress(default_is_ipv4 ? "0.0.0.0/0" : "::/0").value();
  const std::optional<InterfaceAddress> network = ParseInterfaceAddress(text);
  if (!network) {
    return absl::InvalidArgumentError(
        "not an IPv4 or IPv6 network with a prefix length, like 10.1.0.0/16, nor \"default\"");
  }
  if (network->gid.IsMulticast())
    return absl::InvalidArgumentError("multicast groups need no route");
  const InterfaceAddress whole = WholeNetwork(*network);
  if (whole == *network) return whole;
  return absl::InvalidArgumentError(
      absl::StrCat("invalid prefix for its length; is ", NetworkText(whole), " meant?"));
}

absl::StatusOr<roce::Gid> ParseGateway(const std::string& text) {
  const std::optional<roce::Gid> gateway = ParseIp(text);
  if (gateway && IsUsableAddress(*gateway) && IsHostAddress({*gateway, 32})) return *gateway;
  return absl::InvalidArgumentError(absl::StrCat("nexthop has invalid gateway: ", text,
                                                 " is not an IPv4 or IPv6 unicast address"));
}

absl::StatusOr<Route> ParseRoute(const std::string& network, const std::string& gateway) {
  const absl::StatusOr<roce::Gid> by = ParseGateway(gateway);
  if (!by.ok()) return by.status();
  const absl::StatusOr<InterfaceAddress> to = ParseNetwork(network, by->IsIpv4());
  if (!to.ok()) return to.status();
  if (to->gid.IsIpv4() != by->IsIpv4()) {
    return absl::InvalidArgumentError("network and gateway are of different families");
  }
  return Route{*to, *by};
}

absl::StatusOr<Route> ParseRoute(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.size() == 3 && words[1] == "via") return ParseRoute(words[0], words[2]);
  return absl::InvalidArgumentError(
      "not \"NETWORK via GATEWAY\", like \"10.1.0.0/16 via 10.99.0.9\"");
}

std::string GatewayFault(const roce::NetAddress& gateway,
                         std::span<const InterfaceAddress> addresses) {
  // The device has a link-local address in every VLAN, without configuration.
  bool is_near = SameNetwork({LinkLocal(roce::Mac{}), 64}, gateway.gid);
  for (const InterfaceAddress& address : addresses) {
    if (address.vlan != gateway.vlan) continue;
    if (address.gid == gateway.gid) {
      return absl::StrCat(IpText(gateway.gid), " is the device's own address");
    }
    if (!SameNetwork(address, gateway.gid)) continue;
    is_near = true;
    if (gateway.gid.IsIpv4() && !IsHostAddress({gateway.gid, address.prefix_length})) {
      return absl::StrCat(IpText(gateway.gid), " is a network or broadcast address, not a host's");
    }
  }
  if (is_near) return "";
  return absl::StrCat(IpText(gateway.gid), " is in none of the device's networks");
}

std::string RouteFault(const Route& route, std::span<const InterfaceAddress> addresses) {
  const std::string fault = GatewayFault({route.gateway, route.network.vlan}, addresses);
  if (!fault.empty()) return absl::StrCat("nexthop has invalid gateway: ", fault);
  const InterfaceAddress link_local{LinkLocal(roce::Mac{}), 64, route.network.vlan};
  const bool is_own =
      IsSameNetwork(route.network, link_local) ||
      std::any_of(addresses.begin(), addresses.end(), [&](const InterfaceAddress& address) {
        return IsSameNetwork(route.network, address);
      });
  return is_own ? "the route exists: the device has an address in this network" : "";
}

bool ComesBefore(const Route& a, const Route& b) {
  const auto key = [](const Route& route) {
    const InterfaceAddress& network = route.network;
    return std::tuple(network.vlan, !network.gid.IsIpv4(), 128 - network.prefix_length,
                      network.gid.bytes);
  };
  return key(a) < key(b);
}

std::string NetworkText(const InterfaceAddress& network) {
  return absl::StrCat(IpText(network.gid), "/", network.prefix_length);
}

std::string RouteText(const Route& route) {
  return absl::StrCat(NetworkText(route.network), " via ",
                      NetText({route.gateway, route.network.vlan}));
}

}  // namespace roci::control
