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

  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// "02:00:5e:10:00:01"; nothing else.
std::optional<roce::Mac> ParseMac(std::string_view text);
// "10.0.0.1" or "fd00::1", without a prefix length.
std::optional<roce::Gid> ParseIp(std::string_view text);
// As ParseIp with "/length"; without one the whole address is the prefix.
std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text);

std::string MacText(const roce::Mac& mac);
// IPv4-mapped addresses come out as IPv4.
std::string IpText(const roce::Gid& gid);
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
