// Parses, checks, sorts and formats the routes of a device. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "control/net/ip_text.h"
#include "roce/types.h"

namespace roci::control {

// A route to `network`, whose bits after the prefix are zero, through `gateway`. Both have the same
// family and the VLAN of `network`.
struct Route {
  InterfaceAddress network;
  roce::Gid gateway;

  friend bool operator==(const Route&, const Route&) = default;
};

// The default route of the gateway's family.
Route DefaultRoute(const roce::Gid& gateway, uint16_t vlan);

// "10.1.0.0/16", "fd00:1::/64", "10.1.2.3" for one host, "default" for all addresses of the family.
// InvalidArgument: the message says what is wrong.
absl::StatusOr<InterfaceAddress> ParseNetwork(const std::string& text, bool default_is_ipv4);
absl::StatusOr<roce::Gid> ParseGateway(const std::string& text);
absl::StatusOr<Route> ParseRoute(const std::string& network, const std::string& gateway);
// "NETWORK via GATEWAY".
absl::StatusOr<Route> ParseRoute(const std::string& text);

// Why a device with `addresses` and its link-local addresses cannot have `gateway` or `route`;
// empty: it can. Addresses in other VLANs are ignored.
std::string GatewayFault(const roce::NetAddress& gateway,
                         std::span<const InterfaceAddress> addresses);
std::string RouteFault(const Route& route, std::span<const InterfaceAddress> addresses);

// The order of AddressTable::routes(): by VLAN and family, then the longest prefix first.
bool ComesBefore(const Route& a, const Route& b);

// "10.1.0.0/16"
std::string NetworkText(const InterfaceAddress& network);
// "10.1.0.0/16 via 10.99.0.9", or "10.1.0.0/16 via 10.99.0.9 in VLAN 7".
std::string RouteText(const Route& route);

}  // namespace roci::control
