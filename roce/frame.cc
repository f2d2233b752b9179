// The frame encoder: template copy, the few fields that change, extension headers, payload, ICRC.
#include "roce/frame.h"

#include <cassert>
#include <cstring>

#include "roce/headers.h"

namespace roci::roce {
namespace {

// Offsets from the IP header.
constexpr uint32_t kIpv4LengthAt = 2;
constexpr uint32_t kIpv4IdAt = 4;
constexpr uint32_t kIpv4ChecksumAt = 10;
constexpr uint32_t kIpv6LengthAt = 4;
constexpr uint32_t kUdpLengthAt = 4;

inline uint16_t LoadNative16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Copies the headers up to the BTH: 42 or 46 bytes (IPv4), 62 or 66 (IPv6), and not a byte more.
inline void CopyHeaders(const FrameTemplate& tmpl, std::byte* out) {
  const uint32_t bytes = tmpl.transport_offset();
  if (tmpl.is_ipv6()) {
    std::memcpy(out, tmpl.bytes(), 48);
    std::memcpy(out + bytes - 32, tmpl.bytes() + bytes - 32, 32);
  } else {
    std::memcpy(out, tmpl.bytes(), 32);
    std::memcpy(out + bytes - 16, tmpl.bytes() + bytes - 16, 16);
  }
}

// Lengths, IPv4 identification and checksum. `udp_bytes` counts from the UDP header through the
// ICRC.
inline void StoreLengths(const FrameTemplate& tmpl, uint32_t udp_bytes, uint16_t ip_id,
                         std::byte* out) {
  std::byte* ip = out + tmpl.network_offset();
  if (tmpl.is_ipv6()) {
    StoreBe<uint16_t>(ip + kIpv6LengthAt, static_cast<uint16_t>(udp_bytes));
    StoreBe<uint16_t>(ip + Ipv6Header::kBytes + kUdpLengthAt, static_cast<uint16_t>(udp_bytes));
    return;
  }
  StoreBe<uint16_t>(ip + kIpv4LengthAt, static_cast<uint16_t>(udp_bytes + Ipv4Header::kBytes));
  StoreBe<uint16_t>(ip + kIpv4IdAt, ip_id);
  StoreBe<uint16_t>(ip + Ipv4Header::kBytes + kUdpLengthAt, static_cast<uint16_t>(udp_bytes));
  // The sum is over words in memory order, so the checksum needs no swap (RFC 1071, 2 (B)).
  const auto checksum = static_cast<uint16_t>(~FoldOnesComplement(
      uint64_t{tmpl.ipv4_sum()} + LoadNative16(ip + kIpv4LengthAt) + LoadNative16(ip + kIpv4IdAt)));
  std::memcpy(ip + kIpv4ChecksumAt, &checksum, sizeof(checksum));
}

inline void StoreBth(const FrameTemplate& tmpl, const TxPacket& packet, std::byte* bth) {
  StoreBe<uint32_t>(bth, tmpl.bth_word() | (uint32_t{static_cast<uint8_t>(packet.opcode)} << 24) |
                             (uint32_t{packet.solicited} << 23) |
                             (PadCount(packet.payload_length) << 20));
  StoreBe<uint32_t>(bth + 4, (uint32_t{packet.fecn} << 31) | (uint32_t{packet.becn} << 30) |
                                 packet.dest_qpn.value());
  StoreBe<uint32_t>(bth + 8, (uint32_t{packet.ack_request} << 31) | packet.psn.value());
}

inline void StoreExtHeaders(const OpcodeInfo& info, const ExtHeaders& ext, std::byte* bth) {
  using enum ExtHeader;
  if (info.ext_mask == 0) return;
  if (info.Has(kReth)) ext.reth.Store(bth + info.OffsetOf(kReth));
  if (info.Has(kAeth)) ext.aeth.Store(bth + info.OffsetOf(kAeth));
  if (info.Has(kImmDt)) ext.imm.Store(bth + info.OffsetOf(kImmDt));
  constexpr uint16_t kCommon =
      OpcodeInfo::Bit(kReth) | OpcodeInfo::Bit(kAeth) | OpcodeInfo::Bit(kImmDt);
  if ((info.ext_mask & ~kCommon) == 0) return;
  if (info.Has(kDeth)) ext.deth.Store(bth + info.OffsetOf(kDeth));
  if (info.Has(kAtomicEth)) ext.atomic.Store(bth + info.OffsetOf(kAtomicEth));
  if (info.Has(kAtomicAckEth)) ext.atomic_ack.Store(bth + info.OffsetOf(kAtomicAckEth));
  if (info.Has(kXrcEth)) ext.xrc.Store(bth + info.OffsetOf(kXrcEth));
  if (info.Has(kIeth)) ext.ieth.Store(bth + info.OffsetOf(kIeth));
  if (info.Has(kFeth)) ext.feth.Store(bth + info.OffsetOf(kFeth));
  if (info.Has(kCnpReserved)) std::memset(bth + info.OffsetOf(kCnpReserved), 0, 16);
}

// Writes all headers and answers the offset of the payload.
[[gnu::always_inline]] inline uint32_t StoreHeaders(const FrameTemplate& tmpl,
                                                    const TxPacket& packet, uint16_t ip_id,
                                                    std::byte* out) {
  const OpcodeInfo& info = InfoOf(packet.opcode);
  assert(info.known);
  assert(packet.payload_length <= kMaxPathMtuBytes);
  assert(info.payload != PayloadRule::kNone || packet.payload_length == 0);
  const uint32_t pad = PadCount(packet.payload_length);
  CopyHeaders(tmpl, out);
  StoreLengths(tmpl,
               UdpHeader::kBytes + info.header_bytes + packet.payload_length + pad + kIcrcBytes,
               ip_id, out);
  std::byte* bth = out + tmpl.transport_offset();
  StoreBth(tmpl, packet, bth);
  StoreExtHeaders(info, packet.ext, bth);
  return tmpl.transport_offset() + info.header_bytes;
}

}  // namespace

FrameTemplate::FrameTemplate(const Path& path) : is_ipv6_(!path.dst_gid.IsIpv4()) {
  assert(path.src_gid.IsIpv4() == path.dst_gid.IsIpv4());
  std::byte* p = bytes_.data();
  const uint16_t ip_type = is_ipv6_ ? kEtherTypeIpv6 : kEtherTypeIpv4;
  EthernetHeader{path.dst_mac, path.src_mac, path.has_vlan ? kEtherTypeVlan : ip_type}.Store(p);
  p += EthernetHeader::kBytes;
  if (path.has_vlan) {
    VlanTag{path.vlan_tci, ip_type}.Store(p);
    p += VlanTag::kBytes;
  }
  network_offset_ = static_cast<uint8_t>(p - bytes_.data());
  if (is_ipv6_) {
    Ipv6Header ip;
    ip.traffic_class = path.traffic_class;
    ip.flow_label = path.flow_label;
    ip.next_header = kIpProtocolUdp;
    ip.hop_limit = path.hop_limit;
    ip.src = path.src_gid.ToIpv6();
    ip.dst = path.dst_gid.ToIpv6();
    ip.Store(p);
    p += Ipv6Header::kBytes;
  } else {
    Ipv4Header ip;
    ip.tos = path.traffic_class;
    ip.fragment = Ipv4Header::kDontFragment;
    ip.ttl = path.hop_limit;
    ip.protocol = kIpProtocolUdp;
    ip.src = path.src_gid.ToIpv4();
    ip.dst = path.dst_gid.ToIpv4();
    ip.Store(p);
    ipv4_sum_ = Ipv4HeaderSum(p);
    p += Ipv4Header::kBytes;
  }
  UdpHeader{path.udp_src_port, kRoceUdpPort, 0, 0}.Store(p);
  p += UdpHeader::kBytes;
  transport_offset_ = static_cast<uint8_t>(p - bytes_.data());
  bth_word_ = (uint32_t{path.mig_req} << 22) | path.pkey;
}

void FrameTemplate::set_pkey(uint16_t pkey) { bth_word_ = (bth_word_ & ~0xFFFFu) | pkey; }

uint16_t UdpSourcePort(uint32_t flow_label, Qpn local, Qpn remote) {
  uint32_t label = flow_label & 0xFFFFF;
  if (label == 0) {
    uint64_t v = uint64_t{local.value()} * remote.value();
    v ^= v >> 20;
    v ^= v >> 40;
    label = static_cast<uint32_t>(v) & 0xFFFFF;
  }
  return static_cast<uint16_t>(0xC000 | ((label & 0x3FFF) ^ (label >> 14)));
}

std::byte* StartFrame(const FrameTemplate& tmpl, const TxPacket& packet, uint16_t ip_id,
                      std::byte* out) {
  return out + StoreHeaders(tmpl, packet, ip_id, out);
}

uint32_t FinishFrame(const FrameTemplate& tmpl, const TxPacket& packet, std::byte* out) {
  uint32_t end = PayloadOffset(tmpl, packet) + packet.payload_length;
  for (uint32_t pad = PadCount(packet.payload_length); pad != 0; --pad) out[end++] = std::byte{0};
  const uint32_t network = tmpl.network_offset();
  StoreIcrc(out + end, ActiveCrcKernel().masked(out + network, end - network, tmpl.is_ipv6()));
  return end + kIcrcBytes;
}

uint32_t EncodeFrame(const FrameTemplate& tmpl, const TxPacket& packet, const std::byte* payload,
                     uint16_t ip_id, std::byte* out) {
  const uint32_t at = StoreHeaders(tmpl, packet, ip_id, out);
  const uint32_t network = tmpl.network_offset();
  const uint32_t pad = PadCount(packet.payload_length);
  const CrcState state = ActiveCrcKernel().masked_copy(out + network, at - network, tmpl.is_ipv6(),
                                                       payload, packet.payload_length, pad);
  const uint32_t end = at + packet.payload_length + pad;
  StoreIcrc(out + end, state);
  return end + kIcrcBytes;
}

uint32_t EncodeFrame(const FrameTemplate& tmpl, const TxPacket& packet,
                     std::span<const PayloadPart> payload, uint16_t ip_id, std::byte* out) {
  if (payload.size() == 1) {
    assert(payload[0].length == packet.payload_length);
    return EncodeFrame(tmpl, packet, payload[0].data, ip_id, out);
  }
  uint32_t at = StoreHeaders(tmpl, packet, ip_id, out);
  const CrcKernel& kernel = ActiveCrcKernel();
  const uint32_t network = tmpl.network_offset();
  CrcState state = kernel.masked(out + network, at - network, tmpl.is_ipv6());
  [[maybe_unused]] const uint32_t start = at;
  for (const PayloadPart& part : payload) {
    state = kernel.copy_update(state, out + at, part.data, part.length);
    at += part.length;
  }
  assert(at - start == packet.payload_length);
  static constexpr std::byte kZeros[4] = {};
  const uint32_t pad = PadCount(packet.payload_length);
  if (pad != 0) {
    state = kernel.copy_update(state, out + at, kZeros, pad);
    at += pad;
  }
  StoreIcrc(out + at, state);
  return at + kIcrcBytes;
}

}  // namespace roci::roce
