#include "tools/decode/dissect.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "roce/frame.h"
#include "roce/icrc.h"
#include "roce/ipv6_extensions.h"
#include "roce/parse.h"
#include "roce/resend.h"
#include "tools/decode/capture_file.h"

namespace roci::tools {
namespace {

using roce::LoadBe;
using Bytes = std::span<const std::byte>;

constexpr uint16_t kEtherTypeRoceV1 = 0x8915;
constexpr unsigned kFethBits = 6;  // of the FETH, that mean something

// Takes a header of type T off the front, if it is there.
template <class T>
std::optional<T> Take(Bytes& rest) {
  if (rest.size() < T::kBytes) return std::nullopt;
  const T header = T::Load(rest.data());
  rest = rest.subspan(T::kBytes);
  return header;
}

// Takes VLAN tags off the front. `type` is that of what comes first; answers that of what `rest` is
// left with.
std::optional<uint16_t> TakeVlans(uint16_t type, Bytes& rest, DecodedFrame& out) {
  while (roce::IsVlanType(type)) {
    const auto tag = Take<roce::VlanTag>(rest);
    if (!tag || out.vlans.size() == kMaxVlanTags) return std::nullopt;
    out.vlans.push_back({type, tag->tci});
    type = tag->ether_type;
  }
  return type;
}

std::optional<uint16_t> TakeEthernet(Bytes& rest, DecodedFrame& out) {
  out.ethernet = Take<roce::EthernetHeader>(rest);
  if (!out.ethernet) return std::nullopt;
  return TakeVlans(out.ethernet->ether_type, rest, out);
}

std::optional<uint16_t> TypeOfIp(Bytes rest) {
  if (rest.empty()) return std::nullopt;
  const unsigned version = std::to_integer<unsigned>(rest[0]) >> 4;
  if (version == 4) return roce::kEtherTypeIpv4;
  if (version == 6) return roce::kEtherTypeIpv6;
  return std::nullopt;
}

// Linux' cooked captures: the type stands at `at` of a header of `bytes`.
std::optional<uint16_t> TakeCooked(Bytes& rest, size_t bytes, size_t at, DecodedFrame& out) {
  if (rest.size() < bytes) return std::nullopt;
  const uint16_t type = LoadBe<uint16_t>(rest.data() + at);
  rest = rest.subspan(bytes);
  return TakeVlans(type, rest, out);
}

// BSD loopback devices: an address family, in the byte order of who captured (LOOP: of the
// network).
std::optional<uint16_t> TakeFamily(Bytes& rest) {
  if (rest.size() < 4) return std::nullopt;
  uint32_t family = LoadBe<uint32_t>(rest.data());
  if (family > 0xFFFF) family = __builtin_bswap32(family);
  rest = rest.subspan(4);
  switch (family) {
    case 2:
      return roce::kEtherTypeIpv4;
    // AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS
    case 10:
    case 24:
    case 28:
    case 30:
      return roce::kEtherTypeIpv6;
    default:
      return 0;
  }
}

bool IsKnownLinkType(uint32_t link_type) {
  constexpr std::array kKnown = {
      kLinkTypeNull, kLinkTypeEthernet, kLinkTypeOldRaw, kLinkTypeOpenBsdRaw, kLinkTypeRaw,
      kLinkTypeLoop, kLinkTypeLinuxSll, kLinkTypeIpv4,   kLinkTypeIpv6,       kLinkTypeLinuxSll2};
  return std::find(kKnown.begin(), kKnown.end(), link_type) != kKnown.end();
}

// The EtherType of what `rest` is left with, 0 for what has none and is no IP; nothing if it cannot
// be told.
std::optional<uint16_t> TakeLink(uint32_t link_type, Bytes& rest, DecodedFrame& out) {
  switch (link_type) {
    case kLinkTypeEthernet:
      return TakeEthernet(rest, out);
    case kLinkTypeLinuxSll:
      return TakeCooked(rest, 16, 14, out);
    case kLinkTypeLinuxSll2:
      return TakeCooked(rest, 20, 0, out);
    case kLinkTypeNull:
    case kLinkTypeLoop:
      return TakeFamily(rest);
    default:
      return TypeOfIp(rest);
  }
}

// What a step towards the UDP header has found.
enum class Step : uint8_t { kGoOn, kOther, kRoceV1, kTooShort };

// `rest` is left with what comes behind the IP header, as `network_bytes` with what the header says
// of the packet's length, true or not.
Step TakeIpv4(Bytes& rest, size_t& network_bytes, DecodedFrame& out) {
  out.ipv4 = Take<roce::Ipv4Header>(rest);
  if (!out.ipv4) return Step::kTooShort;
  if (out.ipv4->protocol != roce::kIpProtocolUdp) return Step::kOther;
  if ((out.ipv4->fragment & roce::Ipv4Header::kOffsetMask) != 0) return Step::kOther;
  // A header that calls itself shorter than it can be is read as if it had no options.
  const uint32_t header =
      std::max((out.ipv4->version_ihl & 0xFu) * 4u, uint32_t{roce::Ipv4Header::kBytes});
  out.ipv4_option_bytes = header - roce::Ipv4Header::kBytes;
  if (out.ipv4_option_bytes > rest.size()) return Step::kTooShort;
  rest = rest.subspan(out.ipv4_option_bytes);
  network_bytes = out.ipv4->total_length;
  return Step::kGoOn;
}

// As TakeIpv4.
Step TakeIpv6(Bytes& rest, size_t& network_bytes, DecodedFrame& out) {
  out.ipv6 = Take<roce::Ipv6Header>(rest);
  if (!out.ipv6) return Step::kTooShort;
  network_bytes = size_t{roce::Ipv6Header::kBytes} + out.ipv6->payload_length;
  uint8_t kind = out.ipv6->next_header;
  for (size_t count = 0; kind != roce::kIpProtocolUdp; ++count) {
    if (!roce::IsIpv6Extension(kind)) return Step::kOther;
    if (count == roce::kMaxIpv6Extensions || rest.size() < roce::kLeastIpv6ExtensionBytes) {
      return Step::kTooShort;
    }
    const size_t bytes = roce::Ipv6ExtensionBytes(kind, std::to_integer<size_t>(rest[1]));
    if (bytes > rest.size()) return Step::kTooShort;
    if (kind == roce::kIpv6FragmentHeader &&
        roce::IsLaterIpv6Fragment(LoadBe<uint16_t>(rest.data() + 2))) {
      return Step::kOther;
    }
    kind = std::to_integer<uint8_t>(rest[0]);
    out.ipv6_extension_bytes += static_cast<uint32_t>(bytes);
    rest = rest.subspan(bytes);
  }
  return Step::kGoOn;
}

Step TakeIp(uint16_t type, Bytes& rest, size_t& network_bytes, DecodedFrame& out) {
  if (type == roce::kEtherTypeIpv4) return TakeIpv4(rest, network_bytes, out);
  if (type == roce::kEtherTypeIpv6) return TakeIpv6(rest, network_bytes, out);
  return Step::kOther;
}

Step TakeUdp(Bytes& rest, DecodedFrame& out) {
  if (rest.size() < 4) return Step::kTooShort;
  if (LoadBe<uint16_t>(rest.data() + 2) != roce::kRoceUdpPort) return Step::kOther;
  out.udp = Take<roce::UdpHeader>(rest);
  return out.udp ? Step::kGoOn : Step::kTooShort;
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
  if (HasExt(out, kFeth)) {
    out.feth_reserved = LoadBe<uint32_t>(&transport[info.OffsetOf(kFeth)]) >> kFethBits;
  }
  if (info.Has(kCnpReserved) && info.header_bytes <= transport.size()) {
    out.ext_present |= roce::OpcodeInfo::Bit(kCnpReserved);
    std::memcpy(out.cnp_reserved.data(), &transport[info.OffsetOf(kCnpReserved)],
                out.cnp_reserved.size());
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
  if ((out.ipv4_option_bytes | out.ipv6_extension_bytes) != 0) return;
  if (network.size() < headers + roce::kIcrcBytes) return;
  const size_t covered = network.size() - roce::kIcrcBytes;
  std::array<std::byte, roce::kIcrcBytes> right{};
  roce::StoreIcrc(right.data(),
                  roce::ActiveCrcKernel().masked(network.data(), covered, out.ipv6.has_value()));
  out.icrc_computed = LoadBe<uint32_t>(right.data());
  out.icrc_found = LoadBe<uint32_t>(network.data() + covered);
  out.icrc = out.icrc_found == out.icrc_computed ? IcrcVerdict::kGood : IcrcVerdict::kBad;
}

uint64_t SumOfWords(Bytes bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += LoadBe<uint16_t>(&bytes[i]);
  if (bytes.size() % 2 != 0) sum += std::to_integer<uint64_t>(bytes.back()) << 8;
  return sum;
}

// Of a packet that gate 1 has passed (RFC 768; RFC 8200, 8.1).
void CheckUdpChecksum(Bytes network, DecodedFrame& out) {
  if (out.udp->checksum == 0) return;  // not used
  const size_t header = out.ipv4 ? roce::Ipv4Header::kBytes : roce::Ipv6Header::kBytes;
  const size_t addresses = out.ipv4 ? 12 : 8;
  const Bytes datagram = network.subspan(header);
  const uint64_t sum = SumOfWords(network.subspan(addresses, header - addresses)) +
                       roce::kIpProtocolUdp + datagram.size() + SumOfWords(datagram) -
                       out.udp->checksum;
  auto right = static_cast<uint16_t>(~roce::FoldOnesComplement(sum));
  if (right == 0) right = 0xFFFF;
  if (out.udp->checksum != right) out.udp_checksum_computed = right;
}

// What our sender never writes and others do: reserved bits (ConnectX sets one in the BTH), pad
// bytes, fragments allowed, a UDP checksum.
bool HasForeignFields(const DecodedFrame& frame) {
  return frame.udp->checksum != 0 || frame.has_pad_bits() || frame.feth_reserved != 0 ||
         frame.cnp_reserved != decltype(frame.cnp_reserved){} ||
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
  if (HasExt(frame, ExtHeader::kFeth)) {
    std::byte* feth = bth + info.OffsetOf(ExtHeader::kFeth);
    roce::StoreBe<uint32_t>(feth, LoadBe<uint32_t>(feth) | frame.feth_reserved << kFethBits);
  }
  if (HasExt(frame, ExtHeader::kCnpReserved)) {
    std::memcpy(bth + info.OffsetOf(ExtHeader::kCnpReserved), frame.cnp_reserved.data(),
                frame.cnp_reserved.size());
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
  std::memcpy(network.data() + covered - frame.bth->pad_count, frame.pad.data(),
              frame.bth->pad_count);
  roce::StoreIcrc(network.data() + covered,
                  roce::ActiveCrcKernel().masked(network.data(), covered, frame.ipv6.has_value()));
}

FrameKind KindOf(Step step, bool is_cut) {
  if (step == Step::kRoceV1) return FrameKind::kRoceV1;
  if (step == Step::kOther) return FrameKind::kOther;
  return is_cut ? FrameKind::kCut : FrameKind::kHeaders;
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
  const size_t present = frame.size() - network_at;
  std::vector<std::byte> plain(roce::EthernetHeader::kBytes + present);
  roce::EthernetHeader header = out.ethernet.value_or(roce::EthernetHeader{});
  header.ether_type = out.ipv4 ? roce::kEtherTypeIpv4 : roce::kEtherTypeIpv6;
  header.Store(plain.data());
  std::memcpy(plain.data() + roce::EthernetHeader::kBytes, frame.data() + network_at, present);
  roce::Packet packet;
  out.malformed = roce::ParseHeaders(plain, packet);
  if (present >= network_bytes) CheckIcrc(frame.subspan(network_at, network_bytes), out);
  if (out.malformed != roce::DropReason::kNone) return;
  std::memcpy(out.pad.data(), packet.payload.data() + packet.payload.size(), packet.pad_count);
  CheckUdpChecksum(frame.subspan(network_at, network_bytes), out);
  if (out.icrc != IcrcVerdict::kGood) return;
  const bool same = Compare(frame, 0, EncodeLink(out), out) &&
                    Compare(frame, network_at, EncodeNetwork(out, packet), out);
  out.reencoded = same ? ReencodeVerdict::kSame : ReencodeVerdict::kDiffers;
}

}  // namespace

Dissection Dissect(Bytes frame, uint32_t original_length, uint32_t link_type) {
  if (!IsKnownLinkType(link_type)) return {FrameKind::kLinkType, {}};
  DecodedFrame out;
  Bytes rest = frame;
  size_t network_at = 0;
  size_t network_bytes = 0;
  const Step step = [&] {
    const auto type = TakeLink(link_type, rest, out);
    if (!type) return Step::kTooShort;
    if (*type == kEtherTypeRoceV1) return Step::kRoceV1;
    network_at = frame.size() - rest.size();
    const Step ip = TakeIp(*type, rest, network_bytes, out);
    return ip == Step::kGoOn ? TakeUdp(rest, out) : ip;
  }();
  if (step != Step::kGoOn) return {KindOf(step, original_length > frame.size()), {}};

  const size_t network_end = network_at + network_bytes;
  out.cut = network_end > frame.size() && original_length >= network_end;
  const size_t transport_at = frame.size() - rest.size();
  size_t transport_end = frame.size();
  if (network_end >= transport_at && network_end <= frame.size()) {
    out.trailer_bytes = static_cast<uint32_t>(frame.size() - network_end);
    transport_end = std::max(transport_at, network_end - std::min<size_t>(network_end, 4));
  }
  ReadTransport(frame.subspan(transport_at, transport_end - transport_at), out);
  ReadPayloadLength(out);
  if (!out.cut) Verify(frame, network_at, network_bytes, out);
  return {FrameKind::kRoce, std::move(out)};
}

}  // namespace roci::tools
