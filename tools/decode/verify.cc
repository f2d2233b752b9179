#include "tools/decode/verify.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "roce/frame.h"
#include "roce/icrc.h"
#include "roce/parse.h"
#include "roce/resend.h"

namespace roci::tools {
namespace {

using roce::LoadBe;
using Bytes = std::span<const std::byte>;

roce::CrcState IcrcOfV2(Bytes covered, bool is_ipv6) {
  return roce::ActiveCrcKernel().masked(covered.data(), covered.size(), is_ipv6);
}

// IBTA vol 1, 7.8.1: as in v2, but over the GRH. Masked with ones: traffic class, flow label, hop
// limit, and the first reserved byte of the BTH. `covered` has both headers.
roce::CrcState IcrcOfV1(Bytes covered) {
  constexpr size_t kLrhBytes = 8;
  constexpr size_t kHopLimit = 7, kReserved8 = roce::Ipv6Header::kBytes + 4;
  std::array<std::byte, kLrhBytes + roce::Ipv6Header::kBytes + roce::Bth::kBytes> masked;
  masked.fill(std::byte{0xFF});
  const Bytes headers = covered.first(masked.size() - kLrhBytes);
  std::byte* const grh = masked.data() + kLrhBytes;
  std::copy(headers.begin(), headers.end(), grh);
  std::fill(grh, grh + 4, std::byte{0xFF});
  grh[0] = headers[0] | std::byte{0x0F};
  grh[kHopLimit] = grh[kReserved8] = std::byte{0xFF};
  const roce::CrcKernel& kernel = roce::ActiveCrcKernel();
  const roce::CrcState state = kernel.update(roce::kCrcInit, masked.data(), masked.size());
  const Bytes others = covered.subspan(headers.size());
  return kernel.update(state, others.data(), others.size());
}

// `covered`: the packet without its ICRC.
roce::CrcState IcrcOf(const DecodedFrame& frame, Bytes covered) {
  return frame.is_v1 ? IcrcOfV1(covered) : IcrcOfV2(covered, frame.ipv6.has_value());
}

// `packet`: the whole packet from the IP header or GRH on.
void CheckIcrc(Bytes packet, DecodedFrame& out) {
  const size_t network = out.ipv4 ? roce::Ipv4Header::kBytes : roce::Ipv6Header::kBytes;
  const size_t headers = network + (out.is_v1 ? 0 : roce::UdpHeader::kBytes) + roce::Bth::kBytes;
  // The coverage of the ICRC is not defined for IP options and extension headers.
  if ((out.ipv4_option_bytes | out.ipv6_extension_bytes) != 0) return;
  if (packet.size() < headers + roce::kIcrcBytes) return;
  const Bytes covered = packet.first(packet.size() - roce::kIcrcBytes);
  std::array<std::byte, roce::kIcrcBytes> right{};
  roce::StoreIcrc(right.data(), IcrcOf(out, covered));
  out.icrc_computed = LoadBe<uint32_t>(right.data());
  out.icrc_found = LoadBe<uint32_t>(packet.data() + covered.size());
  out.icrc = out.icrc_found == out.icrc_computed ? IcrcVerdict::kGood : IcrcVerdict::kBad;
}

uint64_t SumOfWords(Bytes bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += LoadBe<uint16_t>(&bytes[i]);
  if (bytes.size() % 2 != 0) sum += std::to_integer<uint64_t>(bytes.back()) << 8;
  return sum;
}

// For a packet that gate 1 accepts (RFC 768; RFC 8200, 8.1).
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

// Fields that this project's encoder never sets and other senders do: reserved bits (ConnectX sets
// one in the BTH), pad bytes, fragmentation allowed, a UDP checksum. True for all of RoCEv1.
bool HasForeignFields(const DecodedFrame& frame) {
  return frame.is_v1 || frame.udp->checksum != 0 || frame.has_pad_bits() ||
         frame.feth_reserved != 0 || frame.cnp_reserved != decltype(frame.cnp_reserved){} ||
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

// Stores pad and reserved bits into `transport`, the packet from its BTH on.
void StoreForeignTransport(const DecodedFrame& frame, std::span<std::byte> transport) {
  StoreReserved(frame, transport.data());
  const size_t pad_at = transport.size() - roce::kIcrcBytes - frame.bth->pad_count;
  std::memcpy(transport.data() + pad_at, frame.pad.data(), frame.bth->pad_count);
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
  if (frame.udp) roce::StoreBe<uint16_t>(udp + 6, frame.udp->checksum);
  const size_t transport_at = static_cast<size_t>(udp - network.data()) + roce::UdpHeader::kBytes;
  StoreForeignTransport(frame, network.subspan(transport_at));
}

void StoreIcrcOf(const DecodedFrame& frame, std::span<std::byte> packet) {
  const size_t covered = packet.size() - roce::kIcrcBytes;
  roce::StoreIcrc(packet.data() + covered, IcrcOf(frame, packet.first(covered)));
}

// Ethernet header and VLAN tags.
std::vector<std::byte> EncodeLink(const DecodedFrame& frame) {
  std::vector<std::byte> out;
  out.resize(roce::EthernetHeader::kBytes + frame.vlans.size() * roce::VlanTag::kBytes);
  roce::EthernetHeader header = *frame.ethernet;
  std::byte* at = out.data() + roce::EthernetHeader::kBytes;
  const uint16_t packet_type = frame.is_v1  ? kEtherTypeRoceV1
                               : frame.ipv4 ? roce::kEtherTypeIpv4
                                            : roce::kEtherTypeIpv6;
  header.ether_type = frame.vlans.empty() ? packet_type : frame.vlans[0].protocol;
  header.Store(out.data());
  for (size_t i = 0; i < frame.vlans.size(); ++i, at += roce::VlanTag::kBytes) {
    const bool last = i + 1 == frame.vlans.size();
    roce::VlanTag{frame.vlans[i].tci, last ? packet_type : frame.vlans[i + 1].protocol}.Store(at);
  }
  return out;
}

// `packet`: the frame as parsed by gate 1.
std::vector<std::byte> EncodePacket(const DecodedFrame& frame, const roce::Packet& packet) {
  const roce::FrameTemplate tmpl(roce::PathOf(packet));
  const roce::TxPacket tx = roce::TxOf(packet);
  std::vector<std::byte> encoded(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, packet.payload.data(), frame.ipv4 ? frame.ipv4->id : uint16_t{0},
                    encoded.data());
  encoded.erase(encoded.begin(), encoded.begin() + tmpl.network_offset());
  if (!HasForeignFields(frame)) return encoded;
  StoreForeignFields(frame, encoded);
  if (frame.is_v1) {
    encoded.erase(encoded.begin(), encoded.begin() + roce::UdpHeader::kBytes);
    frame.grh->Store(encoded.data());
  }
  StoreIcrcOf(frame, encoded);
  return encoded;
}

// Compares `encoded` with `original` from `at` on. True: equal.
bool Compare(Bytes original, size_t at, const std::vector<std::byte>& encoded, DecodedFrame& out) {
  const auto [mine, theirs] =
      std::mismatch(encoded.begin(), encoded.end(), original.begin() + static_cast<ptrdiff_t>(at),
                    original.end());
  if (mine == encoded.end()) return true;
  out.differs_at = static_cast<uint32_t>(theirs - original.begin());
  return false;
}

// Gate 1 and the encoder get the packet after one plain Ethernet header, without its outer headers.
std::vector<std::byte> PlainFrame(Bytes packet, const DecodedFrame& frame) {
  std::vector<std::byte> plain(roce::EthernetHeader::kBytes + packet.size());
  roce::EthernetHeader header = frame.ethernet.value_or(roce::EthernetHeader{});
  header.ether_type = frame.ipv4 ? roce::kEtherTypeIpv4 : roce::kEtherTypeIpv6;
  header.Store(plain.data());
  std::copy(packet.begin(), packet.end(), plain.begin() + roce::EthernetHeader::kBytes);
  return plain;
}

// The packet converted to v2: IPv6 and UDP headers instead of the GRH. `packet` has the length that
// the GRH states.
std::vector<std::byte> PlainFrameOfV1(Bytes packet) {
  constexpr uint32_t kNetwork = roce::EthernetHeader::kBytes, kUdp = kNetwork + 40;
  constexpr uint32_t kTransport = kUdp + roce::UdpHeader::kBytes;
  const Bytes transport = packet.subspan(roce::Ipv6Header::kBytes);
  const auto length = static_cast<uint16_t>(roce::UdpHeader::kBytes + transport.size());
  std::vector<std::byte> plain(kTransport + transport.size());
  roce::EthernetHeader link;
  link.ether_type = roce::kEtherTypeIpv6;
  link.Store(plain.data());
  roce::Ipv6Header network;
  network.payload_length = length;
  network.next_header = roce::kIpProtocolUdp;
  network.Store(plain.data() + kNetwork);
  roce::UdpHeader udp;
  udp.dst_port = roce::kRoceUdpPort;
  udp.length = length;
  udp.Store(plain.data() + kUdp);
  std::copy(transport.begin(), transport.end(), plain.begin() + kTransport);
  return plain;
}

// Checks the GRH (IBTA vol 1, 8.3). `present`: captured bytes from the GRH on.
roce::DropReason CheckGrh(const DecodedFrame& frame, size_t present, size_t packet_bytes) {
  constexpr uint8_t kIbaTransport = 0x1B;
  constexpr size_t kMostBytes = 0xFFFF - roce::UdpHeader::kBytes;
  if (!frame.grh) return roce::DropReason::kFrameTruncated;
  if (frame.grh->version != 6) return roce::DropReason::kIpv6Header;
  if (frame.grh->next_header != kIbaTransport) return roce::DropReason::kNotRoce;
  if (packet_bytes > present || packet_bytes > kMostBytes) return roce::DropReason::kIpLength;
  return roce::DropReason::kNone;
}

}  // namespace

void Verify(Bytes frame, const PacketPlace& place, DecodedFrame& out) {
  const Bytes present = frame.subspan(place.at, place.end - place.at);
  const Bytes whole = present.first(std::min(present.size(), place.bytes));
  if (present.size() >= place.bytes) CheckIcrc(whole, out);
  std::vector<std::byte> plain;
  if (out.is_v1) {
    out.malformed = CheckGrh(out, present.size(), place.bytes);
    if (out.malformed != roce::DropReason::kNone) return;
    plain = PlainFrameOfV1(whole);
  } else {
    plain = PlainFrame(present, out);
  }
  roce::Packet packet;
  out.malformed = roce::ParseHeaders(plain, packet);
  if (out.malformed != roce::DropReason::kNone) return;
  std::memcpy(out.pad.data(), packet.payload.data() + packet.payload.size(), packet.pad_count);
  if (!out.is_v1) CheckUdpChecksum(whole, out);
  if (out.icrc != IcrcVerdict::kGood) return;
  const bool same = (!place.link_at || Compare(frame, *place.link_at, EncodeLink(out), out)) &&
                    Compare(frame, place.at, EncodePacket(out, packet), out);
  out.reencoded = same ? ReencodeVerdict::kSame : ReencodeVerdict::kDiffers;
}

}  // namespace roci::tools
