// Parses and builds frames of ARP, IPv6 neighbour discovery and ICMP echo. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "roce/types.h"

namespace roci::control {

using Frame = std::vector<std::byte>;

// Result of handling a frame that is not a RoCE packet. Indexes counters.
#define ROCI_SLOW_PATH_REASONS(X)           \
  X(kHandled, "handled")                    \
  X(kTruncated, "truncated")                \
  X(kOtherDestination, "other_destination") \
  X(kVlanNotOurs, "vlan_not_ours")          \
  X(kEtherType, "ether_type")               \
  X(kArpMalformed, "arp_malformed")         \
  X(kArpNotForUs, "arp_not_for_us")         \
  X(kIpv4Malformed, "ipv4_malformed")       \
  X(kIpv4Fragment, "ipv4_fragment")         \
  X(kIpv6Malformed, "ipv6_malformed")       \
  X(kIpNotForUs, "ip_not_for_us")           \
  X(kIpProtocol, "ip_protocol")             \
  X(kIcmpMalformed, "icmp_malformed")       \
  X(kIcmpChecksum, "icmp_checksum")         \
  X(kIcmpType, "icmp_type")                 \
  X(kNdMalformed, "nd_malformed")           \
  X(kNdNotForUs, "nd_not_for_us")           \
  X(kAddressConflict, "address_conflict")   \
  X(kGroupMalformed, "group_malformed")     \
  X(kGroupNotForUs, "group_not_for_us")

enum class SlowPathReason : uint8_t {
#define ROCI_SLOW_PATH_ENUMERATOR(id, name) id,
  ROCI_SLOW_PATH_REASONS(ROCI_SLOW_PATH_ENUMERATOR)
#undef ROCI_SLOW_PATH_ENUMERATOR
};
inline constexpr std::array kSlowPathReasonNames = {
#define ROCI_SLOW_PATH_NAME(id, name) std::string_view(name),
    ROCI_SLOW_PATH_REASONS(ROCI_SLOW_PATH_NAME)
#undef ROCI_SLOW_PATH_NAME
};

inline constexpr uint8_t kIpProtocolIcmp = 1;
inline constexpr roce::Mac kBroadcastMac{{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}};

// RFC 826, for Ethernet and IPv4.
struct ArpMessage {
  bool is_request = false;
  roce::Mac sender_mac;
  roce::Ipv4 sender_ip;
  roce::Mac target_mac;
  roce::Ipv4 target_ip;
};
// `bytes` is what follows the Ethernet header.
std::optional<ArpMessage> ParseArp(std::span<const std::byte> bytes);
Frame BuildArp(const roce::Mac& destination, const ArpMessage& message);

// RFC 4861, 4.3 and 4.4: a neighbour solicitation or advertisement.
struct NdMessage {
  bool is_solicitation = false;
  bool solicited = false;  // advertisements only
  bool override_entry = false;
  roce::Gid source;  // of the IP header; all zero: duplicate address detection
  roce::Gid destination;
  roce::Gid target;
  std::optional<roce::Mac> link_address;
};
Frame BuildNd(const roce::Mac& destination, const roce::Mac& source, const NdMessage& message);

// An IP packet with a valid header that carries ICMP or ICMPv6 with a valid checksum.
struct IcmpPacket {
  roce::Gid source;
  roce::Gid destination;
  uint8_t hop_limit = 0;
  uint8_t type = 0;
  uint8_t code = 0;
  std::span<const std::byte> bytes;  // from the ICMP header on, at least 8
};
// `bytes` is what follows the Ethernet header. kHandled: `out` is filled in.
SlowPathReason ParseIcmp(std::span<const std::byte> bytes, bool ipv6, IcmpPacket& out);
// `packet` is an ICMPv6 solicitation or advertisement; applies RFC 4861, 7.1.1 and 7.1.2.
std::optional<NdMessage> ParseNd(const IcmpPacket& packet);

inline constexpr uint8_t kIcmpEchoReply = 0;
inline constexpr uint8_t kIcmpEchoRequest = 8;
inline constexpr uint8_t kIcmpv6EchoRequest = 128;
inline constexpr uint8_t kIcmpv6EchoReply = 129;

// The reply to an echo request, from the request's destination to its source.
Frame BuildEchoReply(const roce::Mac& destination, const roce::Mac& source,
                     const IcmpPacket& request);

}  // namespace roci::control
