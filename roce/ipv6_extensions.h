// IPv6 extension headers (RFC 8200, 4, and IANA's registry): their types and lengths.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace roci::roce {

inline constexpr uint8_t kIpv6FragmentHeader = 44;
inline constexpr uint8_t kIpv6AuthenticationHeader = 51;
// Longest chain that is followed.
inline constexpr size_t kMaxIpv6Extensions = 8;
// Least length of an extension header. Its first two bytes give the next header's type and offset.
inline constexpr size_t kLeastIpv6ExtensionBytes = 8;

// False for ESP: the headers after it are encrypted.
constexpr bool IsIpv6Extension(uint8_t kind) {
  // Hop by hop, routing, fragment, authentication, destination, mobility, host identity, shim6
  constexpr std::array<uint8_t, 8> kKinds = {
      0, 43, kIpv6FragmentHeader, kIpv6AuthenticationHeader, 60, 135, 139, 140};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

// `units`: the second byte of the header.
constexpr size_t Ipv6ExtensionBytes(uint8_t kind, size_t units) {
  if (kind == kIpv6FragmentHeader) return 8;
  return kind == kIpv6AuthenticationHeader ? (units + 2) * 4 : (units + 1) * 8;
}

// Whether this is not the first fragment. `word`: bytes 2 and 3 of the fragment header (offset, 2
// reserved bits, "more fragments" bit).
constexpr bool IsLaterIpv6Fragment(uint16_t word) { return word >> 3 != 0; }

}  // namespace roci::roce
