// Parses and formats MAC and IP addresses. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "roce/types.h"

namespace roci::control {

// An address of a device with its prefix length in bits: 0..32 for an IPv4-mapped `gid`, else
// 0..128. Addresses with the same prefix are neighbours.
struct InterfaceAddress {
  roce::Gid gid;
  uint8_t prefix_length = 0;
  uint16_t vlan = 0;  // 0: none

  roce::NetAddress net() const { return {gid, vlan}; }
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// Accepts only the form "02:00:5e:10:00:01".
std::optional<roce::Mac> ParseMac(std::string_view text);
// "10.0.0.1" or "fd00::1", without a prefix length.
std::optional<roce::Gid> ParseIp(std::string_view text);
// Like ParseIp with "/length"; without a length the whole address is the prefix.
std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text);

// Whether an interface can have `gid`: not all zero, not multicast, not loopback.
bool IsUsableAddress(const roce::Gid& gid);
// False for an IPv4 network or broadcast address (RFC 1122, 3.2.1.3; a /31 has neither: RFC 3021)
// and for an IPv6 subnet-router anycast address (RFC 4291, 2.6.1; a /127 has none: RFC 6164).
bool IsHostAddress(const InterfaceAddress& address);

std::string MacText(const roce::Mac& mac);
// IPv4-mapped addresses are formatted as IPv4.
std::string IpText(const roce::Gid& gid);
// "10.0.0.1", or "10.0.0.1 in VLAN 7".
std::string NetText(const roce::NetAddress& address);
// Always eight groups, as tools print GIDs: "0000:0000:0000:0000:0000:ffff:0a63:0001".
std::string GidText(const roce::Gid& gid);

// Whether `other` has the same family as `address.gid` and the same first `prefix_length` bits (of
// the IPv4 part for IPv4-mapped addresses).
bool SameNetwork(const InterfaceAddress& address, const roce::Gid& other);

// Modified EUI-64 (RFC 4291, appendix A): the node GUID of a MAC, host byte order.
uint64_t Eui64(const roce::Mac& mac);
// fe80::/64 with the interface identifier of `mac`.
roce::Gid LinkLocal(const roce::Mac& mac);

}  // namespace roci::control
