// Value types of the RoCEv2 wire: sequence numbers, queue pair numbers, keys, addresses, path MTU.
// The types have no byte order: they are values, which headers.h loads from and stores to the wire.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace roci::roce {

inline constexpr uint32_t kMask24 = 0xFFFFFF;

// Packet sequence number: 24 bits that wrap (IBTA vol 1, 9.7.2). There is no operator<, since PSNs
// are ordered only relative to a window: use `Distance` or `InWindow`.
class Psn {
 public:
  constexpr Psn() = default;
  // The upper 8 bits of `value` are dropped.
  explicit constexpr Psn(uint32_t value) : value_(value & kMask24) {}

  constexpr uint32_t value() const { return value_; }

  friend constexpr bool operator==(Psn, Psn) = default;
  friend constexpr Psn operator+(Psn psn, uint32_t n) { return Psn(psn.value_ + n); }
  friend constexpr Psn operator-(Psn psn, uint32_t n) { return Psn(psn.value_ - n); }
  constexpr Psn& operator+=(uint32_t n) { return *this = *this + n; }
  constexpr Psn& operator++() { return *this += 1; }

 private:
  uint32_t value_ = 0;
};

// The signed distance from `from` to `to`, in [-2^23, 2^23): positive if `to` is later. Distance(p,
// p + n) == n for every n < 2^23.
constexpr int32_t Distance(Psn from, Psn to) {
  return static_cast<int32_t>((to.value() - from.value()) << 8) >> 8;
}

// True if `psn` is one of the `length` numbers start, start + 1, ... (length <= 2^24).
constexpr bool InWindow(Psn psn, Psn start, uint32_t length) {
  return ((psn.value() - start.value()) & kMask24) < length;
}

// Queue pair number, 24 bits. 1 is the general service interface; 0xFFFFFF addresses multicast.
class Qpn {
 public:
  constexpr Qpn() = default;
  explicit constexpr Qpn(uint32_t value) : value_(value & kMask24) {}
  constexpr uint32_t value() const { return value_; }
  friend constexpr auto operator<=>(Qpn, Qpn) = default;

 private:
  uint32_t value_ = 0;
};
// General services (MADs) use queue pair 1 and one Q_Key (IBTA vol 1, 10.2.5.1 and 13.4.2).
inline constexpr Qpn kGsiQpn{1};
inline constexpr uint32_t kGsiQkey = 0x80010000;
inline constexpr uint32_t kMadBytes = 256;
inline constexpr Qpn kMulticastQpn{0xFFFFFF};

// The P_Key of the default partition, as a full member (IBTA vol 1, 10.9.1.2).
inline constexpr uint16_t kDefaultPkey = 0xFFFF;

// Message sequence number of the responder, 24 bits that wrap (IBTA vol 1, 9.7.7.1).
class Msn {
 public:
  constexpr Msn() = default;
  explicit constexpr Msn(uint32_t value) : value_(value & kMask24) {}
  constexpr uint32_t value() const { return value_; }
  friend constexpr bool operator==(Msn, Msn) = default;
  constexpr Msn& operator++() {
    value_ = (value_ + 1) & kMask24;
    return *this;
  }

 private:
  uint32_t value_ = 0;
};

// As Distance(Psn, Psn).
constexpr int32_t Distance(Msn from, Msn to) {
  return static_cast<int32_t>((to.value() - from.value()) << 8) >> 8;
}

// L_Key or R_Key: 32 opaque bits.
class Key {
 public:
  constexpr Key() = default;
  explicit constexpr Key(uint32_t value) : value_(value) {}
  constexpr uint32_t value() const { return value_; }
  friend constexpr bool operator==(Key, Key) = default;

 private:
  uint32_t value_ = 0;
};

struct Mac {
  std::array<uint8_t, 6> bytes{};
  // Multicast or broadcast (IEEE 802, the I/G bit).
  constexpr bool IsGroup() const { return (bytes[0] & 1) != 0; }
  friend constexpr bool operator==(const Mac&, const Mac&) = default;
};

// Addresses have their bytes in network order.
struct Ipv4 {
  std::array<uint8_t, 4> bytes{};
  friend constexpr bool operator==(const Ipv4&, const Ipv4&) = default;
};

struct Ipv6 {
  std::array<uint8_t, 16> bytes{};
  friend constexpr bool operator==(const Ipv6&, const Ipv6&) = default;
};

// A RoCEv2 GID is an IPv6 address, or an IPv4 address mapped to ::ffff:a.b.c.d (IBTA vol 1,
// A17.4.2).
struct alignas(8) Gid {
  std::array<uint8_t, 16> bytes{};

  static constexpr Gid FromIpv4(Ipv4 ip) {
    Gid gid;
    gid.bytes = {0, 0, 0,    0,    0,           0,           0,           0,
                 0, 0, 0xFF, 0xFF, ip.bytes[0], ip.bytes[1], ip.bytes[2], ip.bytes[3]};
    return gid;
  }
  static constexpr Gid FromIpv6(const Ipv6& ip) { return Gid{ip.bytes}; }

  constexpr bool IsIpv4() const {
    const auto words = std::bit_cast<std::array<uint64_t, 2>>(bytes);
    const auto low = std::bit_cast<std::array<uint32_t, 4>>(bytes)[2];
    constexpr uint32_t kMapped =
        std::endian::native == std::endian::little ? 0xFFFF0000 : 0x0000FFFF;
    return words[0] == 0 && low == kMapped;
  }
  constexpr bool IsZero() const {
    const auto words = std::bit_cast<std::array<uint64_t, 2>>(bytes);
    return (words[0] | words[1]) == 0;
  }
  // ff00::/8, or ::ffff:224.0.0.0/4.
  constexpr bool IsMulticast() const {
    return bytes[0] == 0xFF || (IsIpv4() && (bytes[12] & 0xF0) == 0xE0);
  }
  // Only meaningful if IsIpv4().
  constexpr Ipv4 ToIpv4() const { return Ipv4{{bytes[12], bytes[13], bytes[14], bytes[15]}}; }
  constexpr Ipv6 ToIpv6() const { return Ipv6{bytes}; }

  friend constexpr bool operator==(const Gid& a, const Gid& b) {
    return std::bit_cast<std::array<uint64_t, 2>>(a.bytes) ==
           std::bit_cast<std::array<uint64_t, 2>>(b.bytes);
  }
};

// An address within a VLAN; other VLANs may have the same address.
struct NetAddress {
  Gid gid;
  uint16_t vlan = 0;  // 0: none
  friend constexpr bool operator==(const NetAddress&, const NetAddress&) = default;
  friend constexpr bool operator<(const NetAddress& a, const NetAddress& b) {
    return a.vlan != b.vlan ? a.vlan < b.vlan : a.gid.bytes < b.gid.bytes;
  }
};

// The transport service, numbered as in the upper three bits of the BTH opcode (IBTA vol 1, 9.2.1).
enum class Transport : uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

// Path MTU; the values are the wire codes of the CM and of verbs (1 = 256 ... 5 = 4096).
enum class PathMtu : uint8_t { k256 = 1, k512 = 2, k1024 = 3, k2048 = 4, k4096 = 5 };

inline constexpr uint32_t kMaxPathMtuBytes = 4096;

// Code n stands for 2^(n + 7) bytes.
inline constexpr uint32_t kPathMtuShift = 7;

constexpr uint32_t PathMtuBytes(PathMtu mtu) {
  return 1u << (static_cast<uint8_t>(mtu) + kPathMtuShift);
}

constexpr std::optional<PathMtu> PathMtuFromCode(uint32_t code) {
  if (code < static_cast<uint32_t>(PathMtu::k256) || code > static_cast<uint32_t>(PathMtu::k4096)) {
    return std::nullopt;
  }
  return static_cast<PathMtu>(code);
}

// Exact sizes only: 256, 512, 1024, 2048, 4096.
constexpr std::optional<PathMtu> PathMtuFromBytes(uint32_t bytes) {
  if (!std::has_single_bit(bytes) || bytes < PathMtuBytes(PathMtu::k256) ||
      bytes > kMaxPathMtuBytes)
    return std::nullopt;
  return static_cast<PathMtu>(std::countr_zero(bytes) - int{kPathMtuShift});
}

// The largest path MTU whose packets fit an Ethernet MTU (the L3 size) with the longest headers and
// the ICRC: IPv6 40, UDP 8, BTH 12, XRCETH 4, RETH 16, ImmDt 4, ICRC 4. nullopt below 344 bytes.
inline constexpr uint32_t kMaxPacketOverhead = 40 + 8 + 12 + 4 + 16 + 4 + 4;
constexpr std::optional<PathMtu> PathMtuForEthernetMtu(uint32_t ethernet_mtu) {
  for (uint32_t bytes = kMaxPathMtuBytes; bytes >= 256; bytes /= 2) {
    if (bytes + kMaxPacketOverhead <= ethernet_mtu) return PathMtuFromBytes(bytes);
  }
  return std::nullopt;
}

}  // namespace roci::roce
