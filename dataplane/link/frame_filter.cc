#include "dataplane/link/frame_filter.h"

#include <algorithm>

#include "roce/headers.h"
#include "roce/opcode.h"

namespace roci::dataplane {

std::span<const std::byte> FromBth(std::span<const std::byte> frame) {
  const NetworkHeader network = FindNetworkHeader(frame);
  if (network.version == 0) return {};
  const std::byte* ip = frame.data() + network.offset;
  size_t udp = network.offset + roce::Ipv6Header::kBytes;
  uint8_t protocol = std::to_integer<uint8_t>(ip[6]);
  if (network.version == 4) {
    const size_t ip_bytes = (std::to_integer<size_t>(ip[0]) & 0xF) * 4;
    if (ip_bytes < roce::Ipv4Header::kBytes) return {};
    udp = network.offset + ip_bytes;
    protocol = std::to_integer<uint8_t>(ip[9]);
  }
  if (protocol != roce::kIpProtocolUdp) return {};
  const size_t bth = udp + roce::UdpHeader::kBytes;
  if (frame.size() < bth + roce::Bth::kBytes) return {};
  if (roce::UdpHeader::Load(frame.data() + udp).dst_port != roce::kRoceUdpPort) return {};
  return frame.subspan(bth);
}

NetworkHeader FindNetworkHeader(std::span<const std::byte> frame) {
  uint32_t offset = roce::EthernetHeader::kBytes;
  if (frame.size() < offset) return {};
  uint16_t type = roce::LoadBe<uint16_t>(frame.data() + 12);
  for (int tags = 0; tags < 2 && roce::IsVlanType(type); ++tags) {
    if (frame.size() < offset + roce::VlanTag::kBytes) return {};
    type = roce::LoadBe<uint16_t>(frame.data() + offset + 2);
    offset += roce::VlanTag::kBytes;
  }
  if (type == roce::kEtherTypeIpv4 && frame.size() >= offset + roce::Ipv4Header::kBytes) {
    return {offset, 4};
  }
  if (type == roce::kEtherTypeIpv6 && frame.size() >= offset + roce::Ipv6Header::kBytes) {
    return {offset, 6};
  }
  return {};
}

bool IsMarkedCe(std::span<const std::byte> frame) {
  const NetworkHeader network = FindNetworkHeader(frame);
  if (network.version == 0) return false;
  const std::byte* const ip = frame.data() + network.offset;
  const uint8_t traffic_class = network.version == 4 ? roce::Ipv4Header::Load(ip).tos
                                                     : roce::Ipv6Header::Load(ip).traffic_class;
  return (traffic_class & 3) == 3;
}

bool Matches(const FrameFilter& filter, std::span<const std::byte> frame) {
  if (filter.MatchesAll()) return true;
  const std::span<const std::byte> transport = FromBth(frame);
  return !transport.empty() && MatchesPacket(filter, transport);
}

bool MatchesPacket(const FrameFilter& filter, std::span<const std::byte> transport) {
  const roce::Bth bth = roce::Bth::Load(transport.data());
  if (filter.opcodes.any() && !filter.opcodes.test(static_cast<uint8_t>(bth.opcode))) return false;
  if (filter.qpns.empty()) return true;
  const auto named = [&](roce::Qpn qpn) {
    return std::find(filter.qpns.begin(), filter.qpns.end(), qpn) != filter.qpns.end() ||
           std::find(filter.peers.begin(), filter.peers.end(), qpn) != filter.peers.end();
  };
  if (named(bth.dest_qpn)) return true;
  const roce::OpcodeInfo& info = roce::InfoOf(bth.opcode);
  return info.known && info.Has(roce::ExtHeader::kDeth) && transport.size() >= info.header_bytes &&
         named(roce::Deth::Load(transport.data() + info.OffsetOf(roce::ExtHeader::kDeth)).src_qpn);
}

}  // namespace roci::dataplane
