// IPv6 extension headers (RFC 8200, 4, and IANA's registry): which there are, and where the next
// one begins.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace roci::roce {

inline constexpr uint8_t kIpv6FragmentHeader = 44;
inline constexpr uint8_t kIpv6AuthenticationHeader = 51;
// No chain that makes sense is longer; longer ones are not followed.
inline constexpr size_t kMaxIpv6Extensions = 8;
// Every extension header has so many bytes, the first two of which say what and where the next is.
inline constexpr size_t kLeastIpv6ExtensionBytes = 8;

// ESP is none here, since it hides what is behind it.
constexpr bool IsIpv6Extension(uint8_t kind) {
  // Hop by hop, routing, fragment, authentication, destination, mobility, host identity, shim6
  constexpr std::array<uint8_t, 8> kKinds = {
      0, 43, kIpv6FragmentHeader, kIpv6AuthenticationHeader, 60, 135, 139, 140};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

// `units`: the header's own second byte.
constexpr size_t Ipv6ExtensionBytes(uint8_t kind, size_t units) {
  if (kind == kIpv6FragmentHeader) return 8;
  return kind == kIpv6AuthenticationHeader ? (units + 2) * 4 : (units + 1) * 8;
}

// A fragment that is not the first: `word` is bytes 2 and 3 of its header, the offset and behind it
// two bits reserved and one for more to come.
constexpr bool IsLaterIpv6Fragment(uint16_t word) { return word >> 3 != 0; }

}  // namespace roci::roce
