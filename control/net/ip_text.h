// MAC and IP addresses as people write them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "roce/types.h"

namespace roci::control {

// An address of a device with the length of its network's prefix, which says who is a neighbour:
// 0..32 bits for an IPv4-mapped `gid`, else 0..128.
struct InterfaceAddress {
  roce::Gid gid;
  uint8_t prefix_length = 0;
  uint16_t vlan = 0;  // 0: none

  roce::NetAddress net() const { return {gid, vlan}; }
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// "02:00:5e:10:00:01"; nothing else.
std::optional<roce::Mac> ParseMac(std::string_view text);
// "10.0.0.1" or "fd00::1", without a prefix length.
std::optional<roce::Gid> ParseIp(std::string_view text);
// As ParseIp with "/length"; without one the whole address is the prefix.
std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text);

// Whether an interface can have `gid`: neither all zero, nor a group, nor a loopback address.
bool IsUsableAddress(const roce::Gid& gid);
// False for what names a whole network: an IPv4 network's first and last addresses are its own and
// the broadcast (RFC 1122, 3.2.1.3; networks of /31 have neither: RFC 3021); an IPv6 network's
// first is every router's (RFC 4291, 2.6.1, but RFC 6164 for /127).
bool IsHostAddress(const InterfaceAddress& address);

std::string MacText(const roce::Mac& mac);
// IPv4-mapped addresses come out as IPv4.
std::string IpText(const roce::Gid& gid);
// "10.0.0.1", or "10.0.0.1 in VLAN 7".
std::string NetText(const roce::NetAddress& address);
// Always eight groups, as tools print GIDs: "0000:0000:0000:0000:0000:ffff:0a63:0001".
std::string GidText(const roce::Gid& gid);

// True if the first `prefix_length` bits of `address.gid` (of the IPv4 part, if it is one) and
// `other` agree and both are of one family.
bool SameNetwork(const InterfaceAddress& address, const roce::Gid& other);

// Modified EUI-64 (RFC 4291, appendix A): the node GUID of a MAC, host byte order.
uint64_t Eui64(const roce::Mac& mac);
// fe80::/64 with the interface identifier of `mac`.
roce::Gid LinkLocal(const roce::Mac& mac);

}  // namespace roci::control
