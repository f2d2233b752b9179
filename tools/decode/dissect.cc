#include "tools/decode/dissect.h"

#include <algorithm>
#include <cstring>

#include "roce/frame.h"
#include "roce/icrc.h"
#include "roce/parse.h"
#include "roce/resend.h"
#include "tools/decode/capture_file.h"

namespace roci::tools {
namespace {

using roce::LoadBe;
using Bytes = std::span<const std::byte>;

// Takes a header of type T off the front, if it is there.
template <class T>
std::optional<T> Take(Bytes& rest) {
  if (rest.size() < T::kBytes) return std::nullopt;
  const T header = T::Load(rest.data());
  rest = rest.subspan(T::kBytes);
  return header;
}

// The EtherType of what `rest` is left with; 0 if that cannot be told.
uint16_t TakeEthernet(Bytes& rest, DecodedFrame& out) {
  out.ethernet = Take<roce::EthernetHeader>(rest);
  if (!out.ethernet) return 0;
  uint16_t type = out.ethernet->ether_type;
  while (roce::IsVlanType(type) && out.vlans.size() < kMaxVlanTags) {
    const auto tag = Take<roce::VlanTag>(rest);
    if (!tag) return 0;
    out.vlans.push_back({type, tag->tci});
    type = tag->ether_type;
  }
  return type;
}

uint16_t TypeOfIp(Bytes rest) {
  if (rest.empty()) return 0;
  const unsigned version = std::to_integer<unsigned>(rest[0]) >> 4;
  if (version == 4) return roce::kEtherTypeIpv4;
  return version == 6 ? roce::kEtherTypeIpv6 : 0;
}

// Linux' cooked captures: the type stands at `at` of a header of `bytes`.
uint16_t TakeCooked(Bytes& rest, size_t bytes, size_t at) {
  if (rest.size() < bytes) return 0;
  const uint16_t type = LoadBe<uint16_t>(rest.data() + at);
  rest = rest.subspan(bytes);
  return type;
}

uint16_t TakeLink(uint32_t link_type, Bytes& rest, DecodedFrame& out) {
  switch (link_type) {
    case kLinkTypeEthernet:
      return TakeEthernet(rest, out);
    case kLinkTypeLinuxSll:
      return TakeCooked(rest, 16, 14);
    case kLinkTypeLinuxSll2:
      return TakeCooked(rest, 20, 0);
    case kLinkTypeRaw:
    case kLinkTypeIpv4:
    case kLinkTypeIpv6:
      return TypeOfIp(rest);
    default:
      return 0;
  }
}

// Bytes of the IP packet as its header says; `rest` is left with what comes behind the IP header.
// 0: no IP packet with UDP (or a later fragment of one).
uint32_t TakeIp(uint16_t type, Bytes& rest, DecodedFrame& out) {
  if (type == roce::kEtherTypeIpv4) {
    out.ipv4 = Take<roce::Ipv4Header>(rest);
    if (!out.ipv4 || out.ipv4->protocol != roce::kIpProtocolUdp) return 0;
    if ((out.ipv4->fragment & roce::Ipv4Header::kOffsetMask) != 0) return 0;
    const uint32_t header = (out.ipv4->version_ihl & 0xFu) * 4u;
    if (header < roce::Ipv4Header::kBytes || header - roce::Ipv4Header::kBytes > rest.size()) {
      return 0;
    }
    out.ipv4_option_bytes = header - roce::Ipv4Header::kBytes;
    rest = rest.subspan(out.ipv4_option_bytes);
    return out.ipv4->total_length;
  }
  if (type == roce::kEtherTypeIpv6) {
    out.ipv6 = Take<roce::Ipv6Header>(rest);
    if (!out.ipv6 || out.ipv6->next_header != roce::kIpProtocolUdp) return 0;
    return roce::Ipv6Header::kBytes + out.ipv6->payload_length;
  }
  return 0;
}

bool HasExt(const DecodedFrame& frame, roce::ExtHeader kind) {
  return (frame.ext_present & roce::OpcodeInfo::Bit(kind)) != 0;
}

template <class T>
void LoadExt(const roce::OpcodeInfo& info, roce::ExtHeader kind, Bytes transport, T& value,
             DecodedFrame& out) {
  if (!info.Has(kind) || info.OffsetOf(kind) + T::kBytes > transport.size()) return;
  value = T::Load(transport.data() + info.OffsetOf(kind));
  out.ext_present |= roce::OpcodeInfo::Bit(kind);
}

// `transport` begins with the BTH and ends before the ICRC, or where the capture was cut.
void ReadTransport(Bytes transport, DecodedFrame& out) {
  using enum roce::ExtHeader;
  Bytes rest = transport;
  out.bth = Take<roce::Bth>(rest);
  if (!out.bth) return;
  out.bth_reserved6 = std::to_integer<uint8_t>(transport[4]) & 0x3F;
  out.bth_reserved7 = std::to_integer<uint8_t>(transport[8]) & 0x7F;
  const roce::OpcodeInfo& info = roce::InfoOf(out.bth->opcode);
  if (!info.known) return;
  LoadExt(info, kDeth, transport, out.ext.deth, out);
  LoadExt(info, kXrcEth, transport, out.ext.xrc, out);
  LoadExt(info, kFeth, transport, out.ext.feth, out);
  LoadExt(info, kReth, transport, out.ext.reth, out);
  LoadExt(info, kAtomicEth, transport, out.ext.atomic, out);
  LoadExt(info, kAeth, transport, out.ext.aeth, out);
  LoadExt(info, kAtomicAckEth, transport, out.ext.atomic_ack, out);
  LoadExt(info, kImmDt, transport, out.ext.imm, out);
  LoadExt(info, kIeth, transport, out.ext.ieth, out);
  if (HasExt(out, kDeth)) {
    out.ext_reserved8 = std::to_integer<uint8_t>(transport[info.OffsetOf(kDeth) + 4]);
  } else if (HasExt(out, kXrcEth)) {
    out.ext_reserved8 = std::to_integer<uint8_t>(transport[info.OffsetOf(kXrcEth)]);
  }
}

// From the UDP length, which counts on for frames that are cut.
void ReadPayloadLength(DecodedFrame& out) {
  if (!out.bth || !roce::InfoOf(out.bth->opcode).known) return;
  const uint32_t others = roce::UdpHeader::kBytes + roce::InfoOf(out.bth->opcode).header_bytes +
                          out.bth->pad_count + roce::kIcrcBytes;
  if (out.udp->length >= others) out.payload_bytes = out.udp->length - others;
}

// `network` is the whole IP packet.
void CheckIcrc(Bytes network, DecodedFrame& out) {
  const size_t headers = (out.ipv4 ? roce::Ipv4Header::kBytes : roce::Ipv6Header::kBytes) +
                         roce::UdpHeader::kBytes + roce::Bth::kBytes;
  // With options nobody says what the ICRC covers.
  if (out.ipv4_option_bytes != 0 || network.size() < headers + roce::kIcrcBytes) return;
  const size_t covered = network.size() - roce::kIcrcBytes;
  out.icrc_computed =
      ~roce::ActiveCrcKernel().masked(network.data(), covered, out.ipv6.has_value());
  out.icrc_found = ~roce::LoadIcrcState(network.data() + covered);
  out.icrc = out.icrc_found == out.icrc_computed ? IcrcVerdict::kGood : IcrcVerdict::kBad;
}

// What our sender never writes and others do: reserved bits (ConnectX sets one in the BTH),
// fragments allowed, a UDP checksum.
bool HasForeignFields(const DecodedFrame& frame) {
  return frame.udp->checksum != 0 ||
         (frame.ipv4 && frame.ipv4->fragment != roce::Ipv4Header::kDontFragment) ||
         (frame.bth_reserved6 | frame.bth_reserved7 | frame.ext_reserved8) != 0;
}

void StoreReserved(const DecodedFrame& frame, std::byte* bth) {
  using roce::ExtHeader;
  const roce::OpcodeInfo& info = roce::InfoOf(frame.bth->opcode);
  bth[4] |= std::byte{frame.bth_reserved6};
  bth[8] |= std::byte{frame.bth_reserved7};
  if (HasExt(frame, ExtHeader::kDeth)) {
    bth[info.OffsetOf(ExtHeader::kDeth) + 4] = std::byte{frame.ext_reserved8};
  } else if (HasExt(frame, ExtHeader::kXrcEth)) {
    bth[info.OffsetOf(ExtHeader::kXrcEth)] = std::byte{frame.ext_reserved8};
  }
}

void StoreForeignFields(const DecodedFrame& frame, std::span<std::byte> network) {
  std::byte* udp = network.data() + roce::Ipv6Header::kBytes;
  if (frame.ipv4) {
    udp = network.data() + roce::Ipv4Header::kBytes;
    roce::StoreBe<uint16_t>(network.data() + 6, frame.ipv4->fragment);
    std::memset(network.data() + 10, 0, 2);
    const auto checksum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(network.data()));
    std::memcpy(network.data() + 10, &checksum, sizeof(checksum));
  }
  roce::StoreBe<uint16_t>(udp + 6, frame.udp->checksum);
  StoreReserved(frame, udp + roce::UdpHeader::kBytes);
  const size_t covered = network.size() - roce::kIcrcBytes;
  roce::StoreIcrc(network.data() + covered,
                  roce::ActiveCrcKernel().masked(network.data(), covered, frame.ipv6.has_value()));
}

std::vector<std::byte> EncodeLink(const DecodedFrame& frame) {
  std::vector<std::byte> out;
  if (!frame.ethernet) return out;
  out.resize(roce::EthernetHeader::kBytes + frame.vlans.size() * roce::VlanTag::kBytes);
  roce::EthernetHeader header = *frame.ethernet;
  std::byte* at = out.data() + roce::EthernetHeader::kBytes;
  const uint16_t ip_type = frame.ipv4 ? roce::kEtherTypeIpv4 : roce::kEtherTypeIpv6;
  header.ether_type = frame.vlans.empty() ? ip_type : frame.vlans[0].protocol;
  header.Store(out.data());
  for (size_t i = 0; i < frame.vlans.size(); ++i, at += roce::VlanTag::kBytes) {
    const bool last = i + 1 == frame.vlans.size();
    roce::VlanTag{frame.vlans[i].tci, last ? ip_type : frame.vlans[i + 1].protocol}.Store(at);
  }
  return out;
}

// `packet` is what gate 1 made of the frame.
std::vector<std::byte> EncodeNetwork(const DecodedFrame& frame, const roce::Packet& packet) {
  const roce::FrameTemplate tmpl(roce::PathOf(packet));
  const roce::TxPacket tx = roce::TxOf(packet);
  std::vector<std::byte> encoded(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, packet.payload.data(), frame.ipv4 ? frame.ipv4->id : uint16_t{0},
                    encoded.data());
  encoded.erase(encoded.begin(), encoded.begin() + tmpl.network_offset());
  if (HasForeignFields(frame)) StoreForeignFields(frame, encoded);
  return encoded;
}

// Compares with what stands in `original` from `at` on. True: the same.
bool Compare(Bytes original, size_t at, const std::vector<std::byte>& encoded, DecodedFrame& out) {
  const auto [mine, theirs] =
      std::mismatch(encoded.begin(), encoded.end(), original.begin() + static_cast<ptrdiff_t>(at),
                    original.end());
  if (mine == encoded.end()) return true;
  out.differs_at = static_cast<uint32_t>(theirs - original.begin());
  return false;
}

// Gate 1 and the encoder see the IP packet behind one plain Ethernet header, whatever it came with.
void Verify(Bytes frame, size_t network_at, size_t network_bytes, DecodedFrame& out) {
  const size_t present = std::min(network_bytes, frame.size() - network_at);
  std::vector<std::byte> plain(roce::EthernetHeader::kBytes + present);
  roce::EthernetHeader header = out.ethernet.value_or(roce::EthernetHeader{});
  header.ether_type = out.ipv4 ? roce::kEtherTypeIpv4 : roce::kEtherTypeIpv6;
  header.Store(plain.data());
  std::memcpy(plain.data() + roce::EthernetHeader::kBytes, frame.data() + network_at, present);
  roce::Packet packet;
  out.malformed = roce::ParseHeaders(plain, packet);
  if (present == network_bytes) CheckIcrc(frame.subspan(network_at, network_bytes), out);
  if (out.malformed != roce::DropReason::kNone || out.icrc != IcrcVerdict::kGood) return;
  const bool same = Compare(frame, 0, EncodeLink(out), out) &&
                    Compare(frame, network_at, EncodeNetwork(out, packet), out);
  out.reencoded = same ? ReencodeVerdict::kSame : ReencodeVerdict::kDiffers;
}

}  // namespace

std::optional<DecodedFrame> Dissect(Bytes frame, uint32_t original_length, uint32_t link_type) {
  DecodedFrame out;
  Bytes rest = frame;
  const uint16_t type = TakeLink(link_type, rest, out);
  const size_t network_at = frame.size() - rest.size();
  const uint32_t network_bytes = TakeIp(type, rest, out);
  if (network_bytes == 0) return std::nullopt;
  out.udp = Take<roce::UdpHeader>(rest);
  if (!out.udp || out.udp->dst_port != roce::kRoceUdpPort) return std::nullopt;

  const size_t network_end = network_at + network_bytes;
  out.cut = network_end > frame.size() && original_length >= network_end;
  const size_t transport_at = frame.size() - rest.size();
  size_t transport_end = frame.size();
  if (network_end <= frame.size()) {
    out.trailer_bytes = static_cast<uint32_t>(frame.size() - network_end);
    transport_end = std::max(transport_at, network_end - std::min<size_t>(network_end, 4));
  }
  ReadTransport(frame.subspan(transport_at, transport_end - transport_at), out);
  ReadPayloadLength(out);
  if (!out.cut) Verify(frame, network_at, network_bytes, out);
  return out;
}

}  // namespace roci::tools
