// Gate 1: the checks in the order of the headers. See parse.h.
#include "roce/parse.h"

#include <cstring>

#include "roce/icrc.h"
#include "roce/ipv6_extensions.h"

namespace roci::roce {
namespace {

// The rest of the frame, from the next header on.
struct Rest {
  const std::byte* p;
  size_t bytes;
};

[[gnu::always_inline]] inline DropReason ParseEthernet(Rest& rest, uint16_t& ether_type,
                                                       Packet& out) {
  if (rest.bytes < EthernetHeader::kBytes) [[unlikely]]
    return DropReason::kFrameTruncated;
  std::memcpy(out.dst_mac.bytes.data(), rest.p, 6);
  std::memcpy(out.src_mac.bytes.data(), rest.p + 6, 6);
  ether_type = LoadBe<uint16_t>(rest.p + 12);
  rest = {rest.p + EthernetHeader::kBytes, rest.bytes - EthernetHeader::kBytes};
  out.vlan_tci = 0;
  out.has_vlan = ether_type == kEtherTypeVlan;
  if (!out.has_vlan) return DropReason::kNone;
  if (rest.bytes < VlanTag::kBytes) [[unlikely]]
    return DropReason::kFrameTruncated;
  const VlanTag tag = VlanTag::Load(rest.p);
  out.vlan_tci = tag.tci;
  ether_type = tag.ether_type;
  rest = {rest.p + VlanTag::kBytes, rest.bytes - VlanTag::kBytes};
  return DropReason::kNone;
}

// An IPv4 packet whose header is not the plain 20 bytes.
[[gnu::cold, gnu::noinline]] DropReason OddIpv4Header(Rest rest, uint8_t version_ihl) {
  const size_t header = (version_ihl & 0xFu) * 4u;
  if ((version_ihl >> 4) != 4 || header < Ipv4Header::kBytes) return DropReason::kIpv4Header;
  if (rest.bytes < header + UdpHeader::kBytes) return DropReason::kFrameTruncated;
  // Ping and IGMP may have options and go to the control plane; RoCEv2 has none.
  if (LoadBe<uint8_t>(rest.p + 9) != kIpProtocolUdp) return DropReason::kNotRoce;
  if (LoadBe<uint16_t>(rest.p + header + UdpHeader::kDstPortAt) != kRoceUdpPort)
    return DropReason::kNotRoce;
  return DropReason::kIpv4Options;
}

// On kNone, `rest` is the UDP datagram, with the length that the IP header states; the frame holds
// all of it.
[[gnu::always_inline]] inline DropReason ParseIpv4(Rest& rest, Packet& out) {
  if (rest.bytes < Ipv4Header::kBytes) [[unlikely]]
    return DropReason::kFrameTruncated;
  const Ipv4Header ip = Ipv4Header::Load(rest.p);
  if (ip.version_ihl != 0x45) [[unlikely]]
    return OddIpv4Header(rest, ip.version_ihl);
  if (ip.protocol != kIpProtocolUdp) [[unlikely]]
    return DropReason::kNotRoce;
  if ((ip.fragment & (Ipv4Header::kMoreFragments | Ipv4Header::kOffsetMask)) != 0) [[unlikely]] {
    return DropReason::kIpv4Fragment;
  }
  if (rest.bytes < Ipv4Header::kBytes + UdpHeader::kBytes) [[unlikely]] {
    return DropReason::kFrameTruncated;
  }
  if (LoadBe<uint16_t>(rest.p + Ipv4Header::kBytes + UdpHeader::kDstPortAt) != kRoceUdpPort)
      [[unlikely]] {
    return DropReason::kNotRoce;
  }
  if (Ipv4HeaderSum(rest.p) != 0xFFFF) [[unlikely]]
    return DropReason::kIpv4Checksum;
  if (ip.total_length < Ipv4Header::kBytes + UdpHeader::kBytes || ip.total_length > rest.bytes)
      [[unlikely]] {
    return DropReason::kIpLength;
  }
  out.is_ipv6 = false;
  out.traffic_class = ip.tos;
  out.hop_limit = ip.ttl;
  out.flow_label = 0;
  out.src_gid = Gid::FromIpv4(ip.src);
  out.dst_gid = Gid::FromIpv4(ip.dst);
  out.network_header = rest.p;
  out.network_bytes = ip.total_length;
  rest = {rest.p + Ipv4Header::kBytes, size_t{ip.total_length} - Ipv4Header::kBytes};
  return DropReason::kNone;
}

// An IPv6 packet whose next header is not UDP. Ping and MLD may have extension headers and go to
// the control plane; RoCEv2 has none. A later fragment of UDP has no port, so it is dropped.
[[gnu::cold, gnu::noinline]] DropReason OddIpv6Header(Rest rest, uint8_t next_header) {
  rest = {rest.p + Ipv6Header::kBytes, rest.bytes - Ipv6Header::kBytes};
  uint8_t kind = next_header;
  bool is_fragment = false;
  for (size_t count = 0; kind != kIpProtocolUdp; ++count) {
    if (!IsIpv6Extension(kind)) return DropReason::kNotRoce;
    if (count == kMaxIpv6Extensions) return DropReason::kIpv6Extension;
    if (rest.bytes < kLeastIpv6ExtensionBytes) return DropReason::kFrameTruncated;
    const auto next = LoadBe<uint8_t>(rest.p);
    if (kind == kIpv6FragmentHeader) {
      is_fragment = true;
      if (IsLaterIpv6Fragment(LoadBe<uint16_t>(rest.p + 2))) {
        return next == kIpProtocolUdp ? DropReason::kIpv6Fragment : DropReason::kNotRoce;
      }
    }
    const size_t bytes = Ipv6ExtensionBytes(kind, LoadBe<uint8_t>(rest.p + 1));
    if (bytes > rest.bytes) return DropReason::kFrameTruncated;
    rest = {rest.p + bytes, rest.bytes - bytes};
    kind = next;
  }
  if (is_fragment) return DropReason::kIpv6Fragment;
  if (rest.bytes < UdpHeader::kBytes) return DropReason::kFrameTruncated;
  return LoadBe<uint16_t>(rest.p + UdpHeader::kDstPortAt) == kRoceUdpPort
             ? DropReason::kIpv6Extension
             : DropReason::kNotRoce;
}

// As ParseIpv4.
[[gnu::always_inline]] inline DropReason ParseIpv6(Rest& rest, Packet& out) {
  if (rest.bytes < Ipv6Header::kBytes) [[unlikely]]
    return DropReason::kFrameTruncated;
  const Ipv6Header ip = Ipv6Header::Load(rest.p);
  if (ip.version != 6) [[unlikely]]
    return DropReason::kIpv6Header;
  if (ip.next_header != kIpProtocolUdp) [[unlikely]]
    return OddIpv6Header(rest, ip.next_header);
  if (rest.bytes < Ipv6Header::kBytes + UdpHeader::kBytes) [[unlikely]] {
    return DropReason::kFrameTruncated;
  }
  if (LoadBe<uint16_t>(rest.p + Ipv6Header::kBytes + UdpHeader::kDstPortAt) != kRoceUdpPort)
      [[unlikely]] {
    return DropReason::kNotRoce;
  }
  if (ip.payload_length < UdpHeader::kBytes ||
      ip.payload_length > rest.bytes - Ipv6Header::kBytes ||
      ip.payload_length > 0xFFFF - Ipv6Header::kBytes) [[unlikely]] {
    return DropReason::kIpLength;
  }
  out.is_ipv6 = true;
  out.traffic_class = ip.traffic_class;
  out.hop_limit = ip.hop_limit;
  out.flow_label = ip.flow_label;
  out.src_gid = Gid::FromIpv6(ip.src);
  out.dst_gid = Gid::FromIpv6(ip.dst);
  // As GIDs these would be taken for IPv4 addresses; they are invalid on the wire (RFC 4038, 4.2).
  if (out.src_gid.IsIpv4() || out.dst_gid.IsIpv4()) [[unlikely]] {
    return DropReason::kIpv6MappedAddress;
  }
  out.network_header = rest.p;
  out.network_bytes = static_cast<uint16_t>(Ipv6Header::kBytes + ip.payload_length);
  rest = {rest.p + Ipv6Header::kBytes, ip.payload_length};
  return DropReason::kNone;
}

// The caller has checked the length of the headers.
[[gnu::always_inline]] inline void LoadExtHeaders(const OpcodeInfo& info, const std::byte* bth,
                                                  ExtHeaders& ext) {
  using enum ExtHeader;
  if (info.ext_mask == 0) return;
  if (info.Has(kReth)) ext.reth = Reth::Load(bth + info.OffsetOf(kReth));
  if (info.Has(kAeth)) ext.aeth = Aeth::Load(bth + info.OffsetOf(kAeth));
  if (info.Has(kImmDt)) ext.imm = ImmDt::Load(bth + info.OffsetOf(kImmDt));
  // The common headers are above; one test skips the others.
  constexpr uint16_t kCommon =
      OpcodeInfo::Bit(kReth) | OpcodeInfo::Bit(kAeth) | OpcodeInfo::Bit(kImmDt);
  if ((info.ext_mask & ~kCommon) == 0) return;
  if (info.Has(kDeth)) ext.deth = Deth::Load(bth + info.OffsetOf(kDeth));
  if (info.Has(kAtomicEth)) ext.atomic = AtomicEth::Load(bth + info.OffsetOf(kAtomicEth));
  if (info.Has(kAtomicAckEth)) {
    ext.atomic_ack = AtomicAckEth::Load(bth + info.OffsetOf(kAtomicAckEth));
  }
  if (info.Has(kXrcEth)) ext.xrc = XrcEth::Load(bth + info.OffsetOf(kXrcEth));
  if (info.Has(kIeth)) ext.ieth = Ieth::Load(bth + info.OffsetOf(kIeth));
  if (info.Has(kFeth)) ext.feth = Feth::Load(bth + info.OffsetOf(kFeth));
  if (info.Has(kMissing)) ext.missing = MissingEth::Load(bth + info.OffsetOf(kMissing));
}

[[gnu::always_inline]] inline DropReason CheckPayloadLength(PayloadRule rule, size_t length) {
  switch (rule) {
    case PayloadRule::kAny:
      return length <= kMaxPathMtuBytes ? DropReason::kNone : DropReason::kPayloadLength;
    case PayloadRule::kNone:
      return length == 0 ? DropReason::kNone : DropReason::kPayloadLength;
    case PayloadRule::kEightBytes:
      return length == 8 ? DropReason::kNone : DropReason::kPayloadLength;
  }
  __builtin_unreachable();
}

// `datagram` starts at the UDP header.
[[gnu::always_inline]] inline DropReason ParseTransport(Rest datagram, Packet& out) {
  const UdpHeader udp = UdpHeader::Load(datagram.p);
  if (udp.length != datagram.bytes) [[unlikely]]
    return DropReason::kUdpLength;
  const std::byte* bth_bytes = datagram.p + UdpHeader::kBytes;
  const size_t bytes = datagram.bytes - UdpHeader::kBytes;
  if (bytes < Bth::kBytes + kIcrcBytes) [[unlikely]]
    return DropReason::kHeadersTruncated;
  const Bth bth = Bth::Load(bth_bytes);
  if (bth.transport_version != 0) [[unlikely]]
    return DropReason::kTransportVersion;
  const OpcodeInfo& info = InfoOf(bth.opcode);
  if (!info.known) [[unlikely]]
    return DropReason::kReservedOpcode;
  if (bytes < info.header_bytes + kIcrcBytes) [[unlikely]]
    return DropReason::kHeadersTruncated;
  if (bytes % 4 != 0) [[unlikely]]
    return DropReason::kLengthNotMultipleOf4;
  const size_t padded = bytes - info.header_bytes - kIcrcBytes;
  if (bth.pad_count > padded) [[unlikely]]
    return DropReason::kPadCount;
  const size_t length = padded - bth.pad_count;
  const DropReason length_error = CheckPayloadLength(info.payload, length);
  if (length_error != DropReason::kNone) [[unlikely]]
    return length_error;

  out.info = &info;
  out.opcode = bth.opcode;
  out.solicited = bth.solicited;
  out.ack_request = bth.ack_request;
  out.mig_req = bth.mig_req;
  out.fecn = bth.fecn;
  out.becn = bth.becn;
  out.pad_count = bth.pad_count;
  out.pkey = bth.pkey;
  out.udp_src_port = udp.src_port;
  out.psn = bth.psn;
  out.dest_qpn = bth.dest_qpn;
  out.payload = {bth_bytes + info.header_bytes, length};
  LoadExtHeaders(info, bth_bytes, out.ext);
  return DropReason::kNone;
}

[[gnu::always_inline]] inline DropReason ParseAllHeaders(std::span<const std::byte> frame,
                                                         Packet& out) {
  Rest rest{frame.data(), frame.size()};
  uint16_t ether_type = 0;
  DropReason reason = ParseEthernet(rest, ether_type, out);
  if (reason != DropReason::kNone) [[unlikely]]
    return reason;
  if (ether_type == kEtherTypeIpv4) {
    reason = ParseIpv4(rest, out);
  } else if (ether_type == kEtherTypeIpv6) {
    reason = ParseIpv6(rest, out);
  } else {
    return IsVlanType(ether_type) ? DropReason::kVlanStack : DropReason::kNotRoce;
  }
  if (reason != DropReason::kNone) [[unlikely]]
    return reason;
  return ParseTransport(rest, out);
}

[[gnu::always_inline]] inline DropReason CompareIcrc(const Packet& packet) {
  const size_t covered = packet.network_bytes - kIcrcBytes;
  const CrcState state = ActiveCrcKernel().masked(packet.network_header, covered, packet.is_ipv6);
  return state == LoadIcrcState(packet.network_header + covered) ? DropReason::kNone
                                                                 : DropReason::kIcrc;
}

}  // namespace

DropReason ParseHeaders(std::span<const std::byte> frame, Packet& out) {
  return ParseAllHeaders(frame, out);
}

DropReason CheckIcrc(const Packet& packet) { return CompareIcrc(packet); }

DropReason ParsePacket(std::span<const std::byte> frame, Packet& out) {
  const DropReason reason = ParseAllHeaders(frame, out);
  if (reason != DropReason::kNone) [[unlikely]]
    return reason;
  return CompareIcrc(out);
}

}  // namespace roci::roce
