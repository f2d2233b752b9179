// The invariant CRC of RoCEv2 (IBTA vol 1, 7.8.1 and A17.4.4): CRC-32 with the Ethernet polynomial
// over 8 bytes of ones and the packet from the IP header on, with the fields that routers change
// set to ones. The kernel (implementation) is chosen once, by the processor's features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace roci::roce {

// The CRC-32 register between two parts of a message: starts as ones, complemented at the end.
// zlib's crc32() of a whole message is ~Update(kCrcInit, message).
using CrcState = uint32_t;
inline constexpr CrcState kCrcInit = 0xFFFFFFFF;

// One implementation. Every function takes any alignment and any length.
struct CrcKernel {
  const char* name;
  // Continues `state` over [data, data + length).
  CrcState (*update)(CrcState state, const std::byte* data, size_t length);
  // The same, and copies the bytes to `dst`. The ranges do not overlap.
  CrcState (*copy_update)(CrcState state, std::byte* dst, const std::byte* src, size_t length);
  // State after the pseudo header and the masked packet that starts at the IP header `network`.
  // `length` counts from there and includes BTH at least (IPv4: >= 40, IPv6: >= 60).
  CrcState (*masked)(const std::byte* network, size_t length, bool is_ipv6);
  // `masked` over `header_length` bytes (at most 128 - 8), then over `payload_length` bytes that
  // are copied from `payload` to network + header_length, then over `pad` (0..3) zero bytes that
  // are written behind them. payload_length + pad is a multiple of 4.
  CrcState (*masked_copy)(std::byte* network, size_t header_length, bool is_ipv6,
                          const std::byte* payload, size_t payload_length, size_t pad);
};

// The kernels of this build that this processor supports, fastest last; the first is portable.
std::span<const CrcKernel* const> AvailableCrcKernels();

namespace internal {
// Set once before main(), then constant. Before that: the portable kernel.
extern const CrcKernel* active_crc_kernel;
}  // namespace internal

inline const CrcKernel& ActiveCrcKernel() { return *internal::active_crc_kernel; }

// The ICRC field is the complement of the register, least significant byte first.
inline void StoreIcrc(std::byte* p, CrcState state) {
  const uint32_t icrc = ~state;
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(icrc >> (8 * i));
}
inline CrcState LoadIcrcState(const std::byte* p) {
  uint32_t icrc = 0;
  for (int i = 0; i < 4; ++i) icrc |= std::to_integer<uint32_t>(p[i]) << (8 * i);
  return ~icrc;
}

}  // namespace roci::roce
