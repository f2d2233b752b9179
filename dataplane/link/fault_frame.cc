#include "dataplane/link/fault_frame.h"

#include "dataplane/link/frame_filter.h"

namespace roci::dataplane {

roce::Qpn DatagramSource(std::span<const std::byte> transport) {
  const roce::OpcodeInfo& info = roce::kOpcodeTable[std::to_integer<uint8_t>(transport[0])];
  if (!info.known || !info.Has(roce::ExtHeader::kDeth) || transport.size() < info.header_bytes) {
    return roce::Qpn(0);
  }
  return roce::Deth::Load(transport.data() + info.OffsetOf(roce::ExtHeader::kDeth)).src_qpn;
}

roce::Gid PeerOf(const FaultFrame& frame) {
  const NetworkHeader network = FindNetworkHeader(frame.bytes);
  const std::byte* ip = frame.bytes.data() + network.offset;
  const bool is_out = frame.direction == LinkDirection::kOut;
  if (network.version == 6) {
    const auto header = roce::Ipv6Header::Load(ip);
    return roce::Gid::FromIpv6(is_out ? header.dst : header.src);
  }
  const auto header = roce::Ipv4Header::Load(ip);
  return roce::Gid::FromIpv4(is_out ? header.dst : header.src);
}

}  // namespace roci::dataplane
