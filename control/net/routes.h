// Routes of a device, as people write them and what may be one. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "control/net/ip_text.h"
#include "roce/types.h"

namespace roci::control {

// `gateway` leads to `network`, whose address has no bits behind its prefix. Both are of one family
// and in the VLAN of `network`.
struct Route {
  InterfaceAddress network;
  roce::Gid gateway;

  friend bool operator==(const Route&, const Route&) = default;
};

// To everything of the gateway's family.
Route DefaultRoute(const roce::Gid& gateway, uint16_t vlan);

// "10.1.0.0/16", "fd00:1::/64", "10.1.2.3" for that host alone, "default" for everything of the
// family. InvalidArgument says what is wrong with it.
absl::StatusOr<InterfaceAddress> ParseNetwork(const std::string& text, bool default_is_ipv4);
absl::StatusOr<roce::Gid> ParseGateway(const std::string& text);
absl::StatusOr<Route> ParseRoute(const std::string& network, const std::string& gateway);
// "NETWORK via GATEWAY".
absl::StatusOr<Route> ParseRoute(const std::string& text);

// Why a device with these `addresses`, besides its link-local ones, cannot have `gateway` or
// `route`; empty: it can. Addresses in other VLANs do not matter.
std::string GatewayFault(const roce::NetAddress& gateway,
                         std::span<const InterfaceAddress> addresses);
std::string RouteFault(const Route& route, std::span<const InterfaceAddress> addresses);

// Of two routes that lead to one destination the one with the longer prefix comes first.
bool ComesBefore(const Route& a, const Route& b);

// "10.1.0.0/16"
std::string NetworkText(const InterfaceAddress& network);
// "10.1.0.0/16 via 10.99.0.9", and " in VLAN 7".
std::string RouteText(const Route& route);

}  // namespace roci::control
