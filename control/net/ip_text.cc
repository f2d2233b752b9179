#include "control/net/ip_text.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace roci::control {
namespace {

std::optional<uint32_t> ParseNumber(std::string_view text, int base) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// 127/8 (RFC 1122, 3.2.1.3) and ::1 never leave a host.
bool IsLoopback(const roce::Gid& gid) {
  return gid.IsIpv4() ? gid.bytes[12] == 127 : gid == *ParseIp("::1");
}

}  // namespace

std::optional<roce::Mac> ParseMac(std::string_view text) {
  roce::Mac mac;
  if (text.size() != 17) return std::nullopt;
  for (size_t i = 0; i < 6; ++i) {
    const std::optional<uint32_t> byte = ParseNumber(text.substr(3 * i, 2), 16);
    if (!byte || (i < 5 && text[3 * i + 2] != ':')) return std::nullopt;
    mac.bytes[i] = static_cast<uint8_t>(*byte);
  }
  return mac;
}

std::optional<roce::Gid> ParseIp(std::string_view text) {
  const std::string terminated(text);
  roce::Ipv4 ipv4;
  if (inet_pton(AF_INET, terminated.c_str(), ipv4.bytes.data()) == 1)
    return roce::Gid::FromIpv4(ipv4);
  roce::Ipv6 ipv6;
  if (inet_pton(AF_INET6, terminated.c_str(), ipv6.bytes.data()) == 1)
    return roce::Gid::FromIpv6(ipv6);
  return std::nullopt;
}

std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text) {
  const size_t slash = text.find('/');
  const std::optional<roce::Gid> gid = ParseIp(text.substr(0, slash));
  if (!gid) return std::nullopt;
  const uint8_t bits = gid->IsIpv4() ? 32 : 128;
  if (slash == std::string_view::npos) return InterfaceAddress{*gid, bits};
  const std::optional<uint32_t> length = ParseNumber(text.substr(slash + 1), 10);
  if (!length || *length > bits) return std::nullopt;
  return InterfaceAddress{*gid, static_cast<uint8_t>(*length)};
}

bool IsUsableAddress(const roce::Gid& gid) {
  return !gid.IsZero() && !gid.IsMulticast() && !IsLoopback(gid);
}

bool IsHostAddress(const InterfaceAddress& address) {
  const bool ipv4 = address.gid.IsIpv4();
  const auto& bytes = address.gid.bytes;
  const auto all = [&](uint8_t value) {
    return std::all_of(bytes.begin() + 12, bytes.end(), [=](uint8_t b) { return b == value; });
  };
  if (ipv4 && (all(0x00) || all(0xFF))) return false;
  const size_t first = ipv4 ? 96 + address.prefix_length : address.prefix_length;
  if (first >= 127) return true;
  bool zeros = true;
  bool ones = true;
  for (size_t bit = first; bit < 128; ++bit) {
    const bool set = (bytes[bit / 8] & (0x80 >> bit % 8)) != 0;
    zeros &= !set;
    ones &= set;
  }
  return !zeros && !(ipv4 && ones);
}

std::string MacText(const roce::Mac& mac) {
  const auto& b = mac.bytes;
  return absl::StrFormat("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5]);
}

std::string IpText(const roce::Gid& gid) {
  char text[INET6_ADDRSTRLEN];
  const bool is_ipv4 = gid.IsIpv4();
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, gid.bytes.data() + (is_ipv4 ? 12 : 0), text,
            sizeof(text));
  return text;
}

std::string NetText(const roce::NetAddress& address) {
  return address.vlan == 0 ? IpText(address.gid)
                           : absl::StrCat(IpText(address.gid), " in VLAN ", address.vlan);
}

std::string GidText(const roce::Gid& gid) {
  std::string text;
  for (size_t i = 0; i < 16; i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
  }
  return text;
}

bool SameNetwork(const InterfaceAddress& address, const roce::Gid& other) {
  const bool is_ipv4 = address.gid.IsIpv4();
  if (is_ipv4 != other.IsIpv4()) return false;
  const uint32_t bits = address.prefix_length + (is_ipv4 ? 96u : 0u);
  const auto& a = address.gid.bytes;
  const auto& b = other.bytes;
  if (!std::equal(a.begin(), a.begin() + bits / 8, b.begin())) return false;
  if (bits % 8 == 0) return true;
  return (a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8) == 0;
}

uint64_t Eui64(const roce::Mac& mac) {
  const auto& b = mac.bytes;
  const std::array<uint8_t, 8> bytes = {
      static_cast<uint8_t>(b[0] ^ 2), b[1], b[2], 0xFF, 0xFE, b[3], b[4], b[5]};
  uint64_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

roce::Gid LinkLocal(const roce::Mac& mac) {
  roce::Gid gid;
  gid.bytes[0] = 0xFE;
  gid.bytes[1] = 0x80;
  const uint64_t id = Eui64(mac);
  for (size_t i = 0; i < 8; ++i) gid.bytes[8 + i] = static_cast<uint8_t>(id >> (56 - 8 * i));
  return gid;
}

}  // namespace roci::control
