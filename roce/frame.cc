// The frame encoder: copies the template, sets the fields that change per packet, then writes
// extension headers, payload and ICRC.
#include "roce/frame.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "roce/headers.h"

namespace roci::roce {
namespace {

// Offsets from the IP header.
constexpr uint32_t kIpv4LengthAt = 2;  // the identification follows
constexpr uint32_t kIpv4ChecksumAt = 10;
constexpr uint32_t kIpv6LengthAt = 4;
constexpr uint32_t kUdpLengthAt = 4;

constexpr uint32_t kMigReqBit = 1u << 22;  // of the BTH's first word

// Stores through std::byte may alias anything: the functions below read their input before they
// write.

// Copies exactly the headers before the BTH: 42 or 46 bytes (IPv4), 62 or 66 (IPv6).
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

constexpr uint16_t ToBe16(uint32_t v) {
  const auto low = static_cast<uint16_t>(v);
  return std::endian::native == std::endian::little ? __builtin_bswap16(low) : low;
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
  // The sum is over words in memory order, so the checksum needs no swap (RFC 1071, 2 (B)).
  const uint16_t length = ToBe16(udp_bytes + Ipv4Header::kBytes);
  const uint16_t id = ToBe16(ip_id);
  uint32_t sum = uint32_t{tmpl.ipv4_sum()} + length + id;
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  const auto checksum = static_cast<uint16_t>(~sum);
  const uint16_t length_and_id[2] = {length, id};
  std::memcpy(ip + kIpv4LengthAt, length_and_id, sizeof(length_and_id));
  std::memcpy(ip + kIpv4ChecksumAt, &checksum, sizeof(checksum));
  StoreBe<uint16_t>(ip + Ipv4Header::kBytes + kUdpLengthAt, static_cast<uint16_t>(udp_bytes));
}

inline void StoreBth(const FrameTemplate& tmpl, const TxPacket& packet, std::byte* bth) {
  const uint32_t w0 = tmpl.bth_word() | (uint32_t{static_cast<uint8_t>(packet.opcode)} << 24) |
                      (uint32_t{packet.solicited} << 23) | (PadCount(packet.payload_length) << 20);
  const uint32_t w1 =
      (uint32_t{packet.fecn} << 31) | (uint32_t{packet.becn} << 30) | packet.dest_qpn.value();
  const uint32_t w2 = (uint32_t{packet.ack_request} << 31) | packet.psn.value();
  StoreBe<uint64_t>(bth, (uint64_t{w0} << 32) | w1);
  StoreBe<uint32_t>(bth + 8, w2);
}

inline void StoreExtHeaders(const OpcodeInfo& info, const ExtHeaders& ext, std::byte* bth) {
  using enum ExtHeader;
  const uint32_t mask = info.ext_mask;
  if (mask == 0) return;
  const auto has = [mask](ExtHeader h) { return (mask & OpcodeInfo::Bit(h)) != 0; };
  if (has(kReth)) ext.reth.Store(bth + info.OffsetOf(kReth));
  if (has(kAeth)) ext.aeth.Store(bth + info.OffsetOf(kAeth));
  if (has(kImmDt)) ext.imm.Store(bth + info.OffsetOf(kImmDt));
  constexpr uint16_t kCommon =
      OpcodeInfo::Bit(kReth) | OpcodeInfo::Bit(kAeth) | OpcodeInfo::Bit(kImmDt);
  if ((mask & ~kCommon) == 0) return;
  if (has(kDeth)) ext.deth.Store(bth + info.OffsetOf(kDeth));
  if (has(kAtomicEth)) ext.atomic.Store(bth + info.OffsetOf(kAtomicEth));
  if (has(kAtomicAckEth)) ext.atomic_ack.Store(bth + info.OffsetOf(kAtomicAckEth));
  if (has(kXrcEth)) ext.xrc.Store(bth + info.OffsetOf(kXrcEth));
  if (has(kIeth)) ext.ieth.Store(bth + info.OffsetOf(kIeth));
  if (has(kFeth)) ext.feth.Store(bth + info.OffsetOf(kFeth));
  if (has(kMissing)) ext.missing.Store(bth + info.OffsetOf(kMissing));
  if (has(kCnpReserved)) std::memset(bth + info.OffsetOf(kCnpReserved), 0, 16);
}

// Writes all headers; returns the offset of the payload.
[[gnu::always_inline]] inline uint32_t StoreHeaders(const FrameTemplate& tmpl,
                                                    const TxPacket& packet, uint16_t ip_id,
                                                    std::byte* out) {
  const OpcodeInfo& info = InfoOf(packet.opcode);
  assert(info.known);
  assert(packet.payload_length <= kMaxPathMtuBytes);
  assert(info.payload != PayloadRule::kNone || packet.payload_length == 0);
  const uint32_t header_bytes = info.header_bytes;
  const uint32_t transport = tmpl.transport_offset();
  const uint32_t payload_bytes = packet.payload_length + PadCount(packet.payload_length);
  CopyHeaders(tmpl, out);
  StoreLengths(tmpl, UdpHeader::kBytes + header_bytes + payload_bytes + kIcrcBytes, ip_id, out);
  StoreBth(tmpl, packet, out + transport);
  StoreExtHeaders(info, packet.ext, out + transport);
  return transport + header_bytes;
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
  bth_word_ = (path.mig_req ? kMigReqBit : 0) | path.pkey;
}

void FrameTemplate::set_pkey(uint16_t pkey) { bth_word_ = (bth_word_ & ~0xFFFFu) | pkey; }

FrameTemplate FrameTemplate::ForNotifications(uint8_t dscp, uint8_t priority) const {
  FrameTemplate out = *this;
  if (network_offset_ == EthernetHeader::kBytes + VlanTag::kBytes) {
    std::byte* tag = out.bytes_.data() + EthernetHeader::kBytes;
    constexpr uint32_t kId = (1u << VlanTag::kPriorityShift) - 1;
    const uint32_t control = (LoadBe<uint16_t>(tag) & kId) | uint32_t{priority}
                                                                 << VlanTag::kPriorityShift;
    StoreBe<uint16_t>(tag, static_cast<uint16_t>(control));
  }
  const auto traffic_class = static_cast<uint8_t>(dscp << kDscpShift);
  std::byte* ip = out.bytes_.data() + network_offset_;
  if (is_ipv6_) {
    const uint32_t word = LoadBe<uint32_t>(ip) & ~(0xFFu << 20);
    StoreBe<uint32_t>(ip, word | uint32_t{traffic_class} << 20);
  } else {
    StoreBe<uint8_t>(ip + 1, traffic_class);
    out.ipv4_sum_ = Ipv4HeaderSum(ip);
  }
  out.bth_word_ &= ~kMigReqBit;
  return out;
}

namespace {

uint16_t PortOfLabel(uint32_t label) {
  return static_cast<uint16_t>(0xC000 | ((label & 0x3FFF) ^ (label >> 14)));
}

}  // namespace

uint16_t UdpSourcePort(uint32_t flow_label, Qpn local, Qpn remote) {
  uint32_t label = flow_label & 0xFFFFF;
  if (label == 0) {
    uint64_t v = uint64_t{local.value()} * remote.value();
    v ^= v >> 20;
    v ^= v >> 40;
    label = static_cast<uint32_t>(v) & 0xFFFFF;
  }
  return PortOfLabel(label);
}

uint16_t UdpSourcePort(uint32_t flow_label, const Gid& local, const Gid& remote) {
  uint32_t label = flow_label & 0xFFFFF;
  if (label == 0) {
    uint64_t sum = 0;
    for (const Gid* gid : {&local, &remote}) {
      for (uint32_t half = 0; half < 2; ++half) {
        sum = (sum +
               LoadBe<uint64_t>(reinterpret_cast<const std::byte*>(gid->bytes.data()) + 8 * half)) *
              0x9E37'79B9'7F4A'7C15;  // 2^64 / golden ratio: differences reach the high bits
      }
    }
    label = static_cast<uint32_t>(sum >> 44);
  }
  return PortOfLabel(label);
}

std::byte* StartFrame(const FrameTemplate& tmpl, const TxPacket& packet, uint16_t ip_id,
                      std::byte* out) {
  return out + StoreHeaders(tmpl, packet, ip_id, out);
}

FrameShape ShapeOf(const FrameTemplate& tmpl, const TxPacket& packet) {
  return {static_cast<uint16_t>(tmpl.network_offset()),
          static_cast<uint16_t>(PayloadOffset(tmpl, packet)),
          static_cast<uint16_t>(packet.payload_length), tmpl.is_ipv6()};
}

uint32_t FinishFrame(const FrameShape& shape, std::byte* out) {
  uint32_t end = uint32_t{shape.payload_offset} + shape.payload_length;
  for (uint32_t pad = PadCount(shape.payload_length); pad != 0; --pad) out[end++] = std::byte{0};
  StoreIcrc(out + end, ActiveCrcKernel().masked(out + shape.network_offset,
                                                end - shape.network_offset, shape.is_ipv6));
  return end + kIcrcBytes;
}

uint32_t FinishFrame(const FrameTemplate& tmpl, const TxPacket& packet, std::byte* out) {
  return FinishFrame(ShapeOf(tmpl, packet), out);
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
  // One CRC pass over the gathered bytes is faster than a CRC across the parts, which costs a
  // reduction per part.
  std::byte* at = StartFrame(tmpl, packet, ip_id, out);
  for (const PayloadPart& part : payload) {
    if (part.length != 0) std::memcpy(at, part.data, part.length);
    at += part.length;
  }
  assert(at == out + PayloadOffset(tmpl, packet) + packet.payload_length);
  return FinishFrame(tmpl, packet, out);
}

}  // namespace roci::roce
