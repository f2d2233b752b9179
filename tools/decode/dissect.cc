#include "tools/decode/dissect.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tools/decode/verify.h"

namespace roci::tools {
namespace {

using roce::LoadBe;
using Bytes = std::span<const std::byte>;

// The header of type T at `at`; absent if the captured bytes before `end` do not have all of it.
template <class T>
std::optional<T> LoadAt(Bytes frame, size_t at, size_t end) {
  if (end < at || end - at < T::kBytes) return std::nullopt;
  return T::Load(&frame[at]);
}

// ---- Outer headers ----

OuterHeader OuterOf(const PathHeader& header, Bytes frame) {
  OuterHeader outer{.header = header.header, .id = header.id, .src = {}, .dst = {}};
  if (header.header == Header::kIpv4) {
    const auto ip = roce::Ipv4Header::Load(&frame[header.at]);
    outer.src = roce::Gid::FromIpv4(ip.src);
    outer.dst = roce::Gid::FromIpv4(ip.dst);
  } else if (header.header == Header::kIpv6) {
    const auto ip = roce::Ipv6Header::Load(&frame[header.at]);
    outer.src = roce::Gid::FromIpv6(ip.src);
    outer.dst = roce::Gid::FromIpv6(ip.dst);
  }
  return outer;
}

// Link layers with no field but the type of their payload.
bool IsPlainLink(Header header) {
  return header == Header::kCooked || header == Header::kCooked2 || header == Header::kFamily ||
         header == Header::kIp;
}

// `path`: all outer headers.
void ReadOuter(std::span<const PathHeader> path, Bytes frame, PacketPlace& place,
               DecodedFrame& out) {
  size_t last_link = path.size();
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i].header == Header::kEthernet) last_link = i;
  }
  const bool has_ethernet = last_link != path.size();
  for (size_t i = 0; i < path.size(); ++i) {
    const PathHeader& header = path[i];
    if (i == last_link) {
      out.ethernet = roce::EthernetHeader::Load(&frame[header.at]);
    } else if (header.header == Header::kVlan && (!has_ethernet || i > last_link)) {
      out.vlans.push_back({header.type, static_cast<uint16_t>(*header.id)});
    } else if (!IsPlainLink(header.header)) {
      out.outer.push_back(OuterOf(header, frame));
    }
  }
  if (!has_ethernet) return;
  const size_t link_at = path[last_link].at;
  const size_t link_bytes = roce::EthernetHeader::kBytes + out.vlans.size() * roce::VlanTag::kBytes;
  if (link_at + link_bytes == place.at) place.link_at = link_at;
}

// ---- The packet ----

template <class T>
void LoadExt(const roce::OpcodeInfo& info, roce::ExtHeader kind, Bytes transport, T& value,
             DecodedFrame& out) {
  if (!info.Has(kind) || info.OffsetOf(kind) + T::kBytes > transport.size()) return;
  value = T::Load(transport.data() + info.OffsetOf(kind));
  out.ext_present |= roce::OpcodeInfo::Bit(kind);
}

// `transport` begins with the BTH and ends before the ICRC, or at the end of a cut capture.
void ReadTransport(Bytes transport, DecodedFrame& out) {
  using enum roce::ExtHeader;
  out.bth = LoadAt<roce::Bth>(transport, 0, transport.size());
  if (!out.bth) return;
  out.bth_reserved6 = std::to_integer<uint8_t>(transport[4]) & 0x3F;
  out.bth_reserved7 = std::to_integer<uint8_t>(transport[8]) & 0x7F;
  const HeaderLayout layout = LayoutOf(out.bth->opcode);
  const roce::OpcodeInfo& info = layout.info;
  if (!layout.has_headers()) return;
  if (layout.has_rdeth) out.rdeth = LoadAt<Rdeth>(transport, Rdeth::kOffset, transport.size());
  LoadExt(info, kDeth, transport, out.ext.deth, out);
  LoadExt(info, kXrcEth, transport, out.ext.xrc, out);
  LoadExt(info, kFeth, transport, out.ext.feth, out);
  LoadExt(info, kReth, transport, out.ext.reth, out);
  LoadExt(info, kAtomicEth, transport, out.ext.atomic, out);
  LoadExt(info, kAeth, transport, out.ext.aeth, out);
  LoadExt(info, kAtomicAckEth, transport, out.ext.atomic_ack, out);
  LoadExt(info, kImmDt, transport, out.ext.imm, out);
  LoadExt(info, kIeth, transport, out.ext.ieth, out);
  LoadExt(info, kMissing, transport, out.ext.missing, out);
  if (HasExt(out, kDeth)) {
    out.ext_reserved8 = std::to_integer<uint8_t>(transport[info.OffsetOf(kDeth) + 4]);
  } else if (HasExt(out, kXrcEth)) {
    out.ext_reserved8 = std::to_integer<uint8_t>(transport[info.OffsetOf(kXrcEth)]);
  }
  if (HasExt(out, kFeth)) {
    out.feth_reserved = LoadBe<uint32_t>(&transport[info.OffsetOf(kFeth)]) >> kFethBits;
  }
  if (info.Has(kCnpReserved) && info.header_bytes <= transport.size()) {
    out.ext_present |= roce::OpcodeInfo::Bit(kCnpReserved);
    std::memcpy(out.cnp_reserved.data(), &transport[info.OffsetOf(kCnpReserved)],
                out.cnp_reserved.size());
  }
}

// `transport_bytes`: from the BTH to the ICRC by the lengths in earlier headers, also for cut
// frames.
void ReadPayloadLength(size_t transport_bytes, DecodedFrame& out) {
  if (!out.bth) return;
  const HeaderLayout layout = LayoutOf(out.bth->opcode);
  if (!layout.has_headers()) return;
  const size_t others = layout.info.header_bytes + out.bth->pad_count + size_t{roce::kIcrcBytes};
  if (transport_bytes >= others) {
    out.payload_bytes = static_cast<uint32_t>(transport_bytes - others);
  }
}

// Returns the offset of the transport.
size_t ReadGrh(const PathHeader& header, Bytes frame, PacketPlace& place, DecodedFrame& out) {
  out.is_v1 = true;
  out.grh = LoadAt<roce::Ipv6Header>(frame, header.at, header.end);
  place.bytes = roce::Ipv6Header::kBytes + size_t{out.grh ? out.grh->payload_length : uint16_t{0}};
  return header.at + roce::Ipv6Header::kBytes;
}

// The same for v2. WalkFrame has checked that the IP header is present.
size_t ReadIpAndUdp(const PathHeader& ip, const PathHeader& udp, Bytes frame, PacketPlace& place,
                    DecodedFrame& out) {
  if (ip.header == Header::kIpv4) {
    out.ipv4 = roce::Ipv4Header::Load(&frame[ip.at]);
    out.ipv4_option_bytes = static_cast<uint32_t>(udp.at - ip.at - roce::Ipv4Header::kBytes);
    place.bytes = out.ipv4->total_length;
  } else {
    out.ipv6 = roce::Ipv6Header::Load(&frame[ip.at]);
    out.ipv6_extension_bytes = static_cast<uint32_t>(udp.at - ip.at - roce::Ipv6Header::kBytes);
    place.bytes = size_t{roce::Ipv6Header::kBytes} + out.ipv6->payload_length;
  }
  out.udp = LoadAt<roce::UdpHeader>(frame, udp.at, ip.end);
  return udp.at + roce::UdpHeader::kBytes;
}

// The first header of the path that belongs to the packet itself.
const PathHeader& FirstOfPacket(const Walk& walk) {
  size_t i = walk.path.size() - 1;
  if (walk.end == Header::kRoceV2) {
    while (walk.path[i].header != Header::kIpv4 && walk.path[i].header != Header::kIpv6) --i;
  }
  return walk.path[i];
}

DecodedFrame DissectPacket(Bytes frame, const Walk& walk) {
  DecodedFrame out;
  const PathHeader& first = FirstOfPacket(walk);
  PacketPlace place{.link_at = {}, .at = first.at, .bytes = 0, .end = first.end};
  ReadOuter(std::span(walk.path.data(), static_cast<size_t>(&first - walk.path.data())), frame,
            place, out);
  const size_t transport_at = walk.end == Header::kRoceV1
                                  ? ReadGrh(first, frame, place, out)
                                  : ReadIpAndUdp(first, walk.path.back(), frame, place, out);
  const size_t packet_end = place.at + place.bytes;
  const bool is_headless = out.is_v1 && !out.grh;
  out.cut = is_headless ? first.wire_end > first.end
                        : packet_end > place.end && first.wire_end >= packet_end;
  size_t transport_end = place.end;
  if (packet_end >= transport_at && packet_end <= place.end) {
    out.trailer_bytes = static_cast<uint32_t>(place.end - packet_end);
    transport_end = packet_end - std::min(packet_end, size_t{roce::kIcrcBytes});
  }
  if (transport_end >= transport_at) {
    ReadTransport(frame.subspan(transport_at, transport_end - transport_at), out);
  }
  if (out.udp && out.udp->length >= roce::UdpHeader::kBytes) {
    ReadPayloadLength(size_t{out.udp->length} - roce::UdpHeader::kBytes, out);
  } else if (out.grh) {
    ReadPayloadLength(out.grh->payload_length, out);
  }
  if (!out.cut) Verify(frame, place, out);
  return out;
}

FrameKind KindOf(const Walk& walk) {
  if (MayHideRoce(walk.end)) return FrameKind::kHidden;
  switch (walk.end) {
    case Header::kRoceV1:
    case Header::kRoceV2:
      return FrameKind::kRoce;
    case Header::kTooShort:
      return walk.path.back().wire_end > walk.path.back().end ? FrameKind::kCut
                                                              : FrameKind::kHeaders;
    case Header::kNotUnderstood:
      return FrameKind::kHeaders;
    case Header::kLinkType:
      return FrameKind::kLinkType;
    default:
      return FrameKind::kOther;
  }
}

}  // namespace

Dissection Dissect(Bytes frame, uint32_t original_length, uint32_t link_type) {
  const Walk walk = WalkFrame(frame, original_length, link_type);
  Dissection out{KindOf(walk), {}, walk.end};
  if (out.kind == FrameKind::kRoce) out.roce = DissectPacket(frame, walk);
  return out;
}

}  // namespace roci::tools
