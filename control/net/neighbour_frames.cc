#include "control/net/neighbour_frames.h"

#include <algorithm>
#include <cstring>

#include "roce/headers.h"

namespace roci::control {
namespace {

using roce::EthernetHeader;
using roce::Ipv4Header;
using roce::Ipv6Header;
using roce::LoadBe;
using roce::StoreBe;

// ARP (RFC 826): offsets, and the values of the fields for IPv4 over Ethernet.
constexpr uint32_t kArpBytes = 28;
constexpr size_t kArpProtocol = 2, kArpMacLength = 4, kArpIpLength = 5, kArpOperation = 6,
                 kArpSenderMac = 8, kArpSenderIp = 14, kArpTargetMac = 18, kArpTargetIp = 24;
constexpr std::byte kMacBytes{sizeof(roce::Mac)};
constexpr std::byte kIpv4Bytes{sizeof(roce::Ipv4)};
constexpr uint16_t kArpHardwareEthernet = 1;
constexpr uint16_t kArpRequest = 1;
constexpr uint16_t kArpReply = 2;
constexpr uint32_t kIcmpHeaderBytes = 8;
constexpr size_t kIcmpChecksum = 2;  // offset
// Neighbour discovery (RFC 4861, 4.3, 4.4 and 4.6.1).
constexpr uint32_t kNdBytes = 24;              // without options
constexpr size_t kNdFlags = 4, kNdTarget = 8;  // offsets
constexpr size_t kNdOptionUnitBytes = 8;       // of an option's length
constexpr uint8_t kNdSourceLinkOption = 1;
constexpr uint8_t kNdTargetLinkOption = 2;
constexpr uint32_t kNdSolicitedFlag = 1u << 30;
constexpr uint32_t kNdOverrideFlag = 1u << 29;
constexpr uint8_t kNdHopLimit = 255;

// Sum of big-endian 16-bit words, an odd last byte padded with zero (RFC 1071).
uint64_t SumWords(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += LoadBe<uint16_t>(bytes.data() + i);
  if (i < bytes.size()) sum += static_cast<uint64_t>(bytes[i]) << 8;
  return sum;
}

// RFC 8200, 8.1.
uint64_t SumPseudoHeader(const roce::Gid& source, const roce::Gid& destination, size_t length) {
  return SumWords(std::as_bytes(std::span(source.bytes))) +
         SumWords(std::as_bytes(std::span(destination.bytes))) + length + roce::kIpProtocolIcmpv6;
}

uint16_t Fold(uint64_t sum) { return roce::FoldOnesComplement(sum); }

SlowPathReason ParseIpv4(std::span<const std::byte> bytes, IcmpPacket& out, uint8_t& protocol) {
  if (bytes.size() < Ipv4Header::kBytes) return SlowPathReason::kTruncated;
  const Ipv4Header ip = Ipv4Header::Load(bytes.data());
  const size_t header = (ip.version_ihl & 0xFu) * 4;
  if (ip.version_ihl >> 4 != 4 || header < Ipv4Header::kBytes || ip.total_length < header ||
      ip.total_length > bytes.size()) {
    return SlowPathReason::kIpv4Malformed;
  }
  if (Fold(SumWords(bytes.first(header))) != 0xFFFF) return SlowPathReason::kIpv4Malformed;
  if (ip.fragment & (Ipv4Header::kMoreFragments | Ipv4Header::kOffsetMask)) {
    return SlowPathReason::kIpv4Fragment;
  }
  out.source = roce::Gid::FromIpv4(ip.src);
  out.destination = roce::Gid::FromIpv4(ip.dst);
  out.hop_limit = ip.ttl;
  out.bytes = bytes.subspan(header, ip.total_length - header);
  protocol = ip.protocol;
  return SlowPathReason::kHandled;
}

SlowPathReason ParseIpv6(std::span<const std::byte> bytes, IcmpPacket& out, uint8_t& protocol) {
  if (bytes.size() < Ipv6Header::kBytes) return SlowPathReason::kTruncated;
  const Ipv6Header ip = Ipv6Header::Load(bytes.data());
  if (ip.version != 6 || ip.payload_length > bytes.size() - Ipv6Header::kBytes) {
    return SlowPathReason::kIpv6Malformed;
  }
  out.source = roce::Gid::FromIpv6(ip.src);
  out.destination = roce::Gid::FromIpv6(ip.dst);
  // IPv4-mapped addresses are not valid on the wire, and would be taken for IPv4 addresses here.
  if (out.source.IsIpv4() || out.destination.IsIpv4()) return SlowPathReason::kIpv6Malformed;
  out.hop_limit = ip.hop_limit;
  out.bytes = bytes.subspan(Ipv6Header::kBytes, ip.payload_length);
  protocol = ip.next_header;
  return SlowPathReason::kHandled;
}

// Ethernet and IP headers before `icmp_bytes` of ICMP, which the caller fills in.
Frame StartIcmp(const roce::Mac& destination_mac, const roce::Mac& source_mac,
                const roce::Gid& source, const roce::Gid& destination, uint8_t hop_limit,
                size_t icmp_bytes, size_t& icmp_offset) {
  const bool ipv6 = !destination.IsIpv4();
  icmp_offset = EthernetHeader::kBytes + (ipv6 ? Ipv6Header::kBytes : Ipv4Header::kBytes);
  Frame frame(std::max<size_t>(roce::kMinFrameBytes, icmp_offset + icmp_bytes));
  EthernetHeader{destination_mac, source_mac, ipv6 ? roce::kEtherTypeIpv6 : roce::kEtherTypeIpv4}
      .Store(frame.data());
  std::byte* ip = frame.data() + EthernetHeader::kBytes;
  if (ipv6) {
    Ipv6Header header;
    header.payload_length = static_cast<uint16_t>(icmp_bytes);
    header.next_header = roce::kIpProtocolIcmpv6;
    header.hop_limit = hop_limit;
    header.src = source.ToIpv6();
    header.dst = destination.ToIpv6();
    header.Store(ip);
    return frame;
  }
  Ipv4Header header;
  header.total_length = static_cast<uint16_t>(Ipv4Header::kBytes + icmp_bytes);
  header.ttl = hop_limit;
  header.protocol = kIpProtocolIcmp;
  header.src = source.ToIpv4();
  header.dst = destination.ToIpv4();
  header.Store(ip);
  StoreBe<uint16_t>(ip + Ipv4Header::kChecksumOffset,
                    static_cast<uint16_t>(~Fold(SumWords(std::span(ip, Ipv4Header::kBytes)))));
  return frame;
}

// `icmp` has a zero checksum field.
void StoreIcmpChecksum(std::span<std::byte> icmp, const roce::Gid& source,
                       const roce::Gid& destination) {
  uint64_t sum = SumWords(icmp);
  if (!destination.IsIpv4()) sum += SumPseudoHeader(source, destination, icmp.size());
  StoreBe<uint16_t>(icmp.data() + kIcmpChecksum, static_cast<uint16_t>(~Fold(sum)));
}

// The link-layer address option of type `wanted` among `options`; false: malformed.
bool FindLinkAddress(std::span<const std::byte> options, uint8_t wanted,
                     std::optional<roce::Mac>& out) {
  while (!options.empty()) {
    if (options.size() < 2) return false;
    const size_t length = static_cast<size_t>(options[1]) * kNdOptionUnitBytes;
    if (length == 0 || length > options.size()) return false;
    if (static_cast<uint8_t>(options[0]) == wanted && length == kNdOptionUnitBytes) {
      std::memcpy(out.emplace().bytes.data(), options.data() + 2, sizeof(roce::Mac));
    }
    options = options.subspan(length);
  }
  return true;
}

}  // namespace

std::optional<ArpMessage> ParseArp(std::span<const std::byte> bytes) {
  if (bytes.size() < kArpBytes) return std::nullopt;
  const std::byte* p = bytes.data();
  const uint16_t operation = LoadBe<uint16_t>(p + kArpOperation);
  if (LoadBe<uint16_t>(p) != kArpHardwareEthernet ||
      LoadBe<uint16_t>(p + kArpProtocol) != roce::kEtherTypeIpv4 || p[kArpMacLength] != kMacBytes ||
      p[kArpIpLength] != kIpv4Bytes || (operation != kArpRequest && operation != kArpReply)) {
    return std::nullopt;
  }
  ArpMessage message;
  message.is_request = operation == kArpRequest;
  std::memcpy(message.sender_mac.bytes.data(), p + kArpSenderMac, sizeof(message.sender_mac));
  std::memcpy(message.sender_ip.bytes.data(), p + kArpSenderIp, sizeof(message.sender_ip));
  std::memcpy(message.target_mac.bytes.data(), p + kArpTargetMac, sizeof(message.target_mac));
  std::memcpy(message.target_ip.bytes.data(), p + kArpTargetIp, sizeof(message.target_ip));
  return message;
}

Frame BuildArp(const roce::Mac& destination, const ArpMessage& message) {
  Frame frame(roce::kMinFrameBytes);
  EthernetHeader{destination, message.sender_mac, roce::kEtherTypeArp}.Store(frame.data());
  std::byte* p = frame.data() + EthernetHeader::kBytes;
  StoreBe<uint16_t>(p, kArpHardwareEthernet);
  StoreBe<uint16_t>(p + kArpProtocol, roce::kEtherTypeIpv4);
  p[kArpMacLength] = kMacBytes;
  p[kArpIpLength] = kIpv4Bytes;
  StoreBe<uint16_t>(p + kArpOperation, message.is_request ? kArpRequest : kArpReply);
  std::memcpy(p + kArpSenderMac, message.sender_mac.bytes.data(), sizeof(message.sender_mac));
  std::memcpy(p + kArpSenderIp, message.sender_ip.bytes.data(), sizeof(message.sender_ip));
  std::memcpy(p + kArpTargetMac, message.target_mac.bytes.data(), sizeof(message.target_mac));
  std::memcpy(p + kArpTargetIp, message.target_ip.bytes.data(), sizeof(message.target_ip));
  return frame;
}

SlowPathReason ParseIcmp(std::span<const std::byte> bytes, bool ipv6, IcmpPacket& out) {
  uint8_t protocol = 0;
  const SlowPathReason reason =
      ipv6 ? ParseIpv6(bytes, out, protocol) : ParseIpv4(bytes, out, protocol);
  if (reason != SlowPathReason::kHandled) return reason;
  if (protocol != (ipv6 ? roce::kIpProtocolIcmpv6 : kIpProtocolIcmp))
    return SlowPathReason::kIpProtocol;
  if (out.bytes.size() < kIcmpHeaderBytes) return SlowPathReason::kIcmpMalformed;
  uint64_t sum = SumWords(out.bytes);
  if (ipv6) sum += SumPseudoHeader(out.source, out.destination, out.bytes.size());
  if (Fold(sum) != 0xFFFF) return SlowPathReason::kIcmpChecksum;
  out.type = static_cast<uint8_t>(out.bytes[0]);
  out.code = static_cast<uint8_t>(out.bytes[1]);
  return SlowPathReason::kHandled;
}

std::optional<NdMessage> ParseNd(const IcmpPacket& packet) {
  if (packet.hop_limit != kNdHopLimit || packet.code != 0 || packet.bytes.size() < kNdBytes) {
    return std::nullopt;
  }
  NdMessage message;
  message.is_solicitation = packet.type == roce::kNdSolicitation;
  message.source = packet.source;
  message.destination = packet.destination;
  std::memcpy(message.target.bytes.data(), packet.bytes.data() + kNdTarget, sizeof(message.target));
  if (message.target.IsMulticast()) return std::nullopt;
  const uint32_t flags = LoadBe<uint32_t>(packet.bytes.data() + kNdFlags);
  message.solicited = flags & kNdSolicitedFlag;
  message.override_entry = flags & kNdOverrideFlag;
  const uint8_t option = message.is_solicitation ? kNdSourceLinkOption : kNdTargetLinkOption;
  if (!FindLinkAddress(packet.bytes.subspan(kNdBytes), option, message.link_address)) {
    return std::nullopt;
  }
  if (message.is_solicitation && message.source.IsZero()) {
    // Duplicate address detection: to the solicited-node group, without a link address.
    if (message.link_address || !message.destination.IsMulticast()) return std::nullopt;
  }
  if (!message.is_solicitation && message.destination.IsMulticast() && message.solicited) {
    return std::nullopt;
  }
  return message;
}

Frame BuildNd(const roce::Mac& destination, const roce::Mac& source, const NdMessage& message) {
  const size_t icmp_bytes = kNdBytes + (message.link_address ? kNdOptionUnitBytes : 0);
  size_t offset = 0;
  Frame frame = StartIcmp(destination, source, message.source, message.destination, kNdHopLimit,
                          icmp_bytes, offset);
  std::byte* p = frame.data() + offset;
  p[0] = std::byte{message.is_solicitation ? roce::kNdSolicitation : roce::kNdAdvertisement};
  StoreBe<uint32_t>(p + kNdFlags, (message.solicited ? kNdSolicitedFlag : 0) |
                                      (message.override_entry ? kNdOverrideFlag : 0));
  std::memcpy(p + kNdTarget, message.target.bytes.data(), sizeof(message.target));
  if (message.link_address) {
    p[kNdBytes] = std::byte{message.is_solicitation ? kNdSourceLinkOption : kNdTargetLinkOption};
    p[kNdBytes + 1] = std::byte{1};
    std::memcpy(p + kNdBytes + 2, message.link_address->bytes.data(), sizeof(roce::Mac));
  }
  StoreIcmpChecksum(std::span(p, icmp_bytes), message.source, message.destination);
  return frame;
}

Frame BuildEchoReply(const roce::Mac& destination, const roce::Mac& source,
                     const IcmpPacket& request) {
  size_t offset = 0;
  Frame frame = StartIcmp(destination, source, request.destination, request.source,
                          roce::kDefaultHopLimit, request.bytes.size(), offset);
  std::byte* p = frame.data() + offset;
  std::memcpy(p, request.bytes.data(), request.bytes.size());
  p[0] = std::byte{request.destination.IsIpv4() ? kIcmpEchoReply : kIcmpv6EchoReply};
  p[1] = std::byte{0};
  StoreBe<uint16_t>(p + kIcmpChecksum, 0);
  StoreIcmpChecksum(std::span(p, request.bytes.size()), request.destination, request.source);
  return frame;
}

}  // namespace roci::control
