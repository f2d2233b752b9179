#include "dataplane/link/injection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "dataplane/link/frame_filter.h"
#include "roce/dcqcn.h"
#include "roce/frame.h"

namespace roci::dataplane {
namespace {

constexpr size_t kMadOffset = roce::Bth::kBytes + roce::Deth::kBytes;

LinkDirection Opposite(LinkDirection direction) {
  return direction == LinkDirection::kIn ? LinkDirection::kOut : LinkDirection::kIn;
}

// The way that the frame has taken, or the way back. Nothing: its addresses are of two families.
std::optional<roce::Path> PathOf(const FaultFrame& frame, bool back) {
  const NetworkHeader network = FindNetworkHeader(frame.bytes);
  const std::byte* const start = frame.bytes.data();
  const std::byte* const ip = start + network.offset;
  const auto link = roce::EthernetHeader::Load(start);
  roce::Path path;
  path.src_mac = link.src;
  path.dst_mac = link.dst;
  path.has_vlan = network.offset > roce::EthernetHeader::kBytes;
  if (path.has_vlan) {
    path.vlan_tci = roce::LoadBe<uint16_t>(ip - roce::VlanTag::kBytes);
  }
  if (network.version == 6) {
    const auto header = roce::Ipv6Header::Load(ip);
    path.src_gid = roce::Gid::FromIpv6(header.src);
    path.dst_gid = roce::Gid::FromIpv6(header.dst);
    path.traffic_class = header.traffic_class;
    path.flow_label = header.flow_label;
    path.hop_limit = header.hop_limit;
  } else {
    const auto header = roce::Ipv4Header::Load(ip);
    path.src_gid = roce::Gid::FromIpv4(header.src);
    path.dst_gid = roce::Gid::FromIpv4(header.dst);
    path.traffic_class = header.tos;
    path.hop_limit = header.ttl;
  }
  path.udp_src_port =
      roce::UdpHeader::Load(start + frame.transport_offset - roce::UdpHeader::kBytes).src_port;
  path.pkey = frame.bth().pkey;
  if (path.src_gid.IsIpv4() != path.dst_gid.IsIpv4()) return std::nullopt;
  if (back) {
    std::swap(path.src_mac, path.dst_mac);
    std::swap(path.src_gid, path.dst_gid);
  }
  return path;
}

uint32_t Finish(uint32_t bytes, std::span<std::byte> out) {
  if (bytes >= roce::kMinFrameBytes) return bytes;
  std::memset(out.data() + bytes, 0, roce::kMinFrameBytes - bytes);
  return roce::kMinFrameBytes;
}

// A CNP or a NAK. It goes to the requester: where a response goes, or where a request comes from.
std::optional<InjectedFrame> MakeAnswer(const Injection& injection, const FaultFrame& hit,
                                        roce::Qpn answered, std::span<std::byte> out) {
  const roce::Bth bth = hit.bth();
  const roce::OpcodeInfo& info = roce::InfoOf(bth.opcode);
  const bool is_cnp = injection.kind == Injection::Kind::kCnp;
  const bool is_reliable =
      info.transport == roce::Transport::kRc || info.transport == roce::Transport::kXrc;
  if (!info.known || info.operation == roce::Operation::kCnp || !(is_cnp || is_reliable)) {
    return std::nullopt;
  }
  const bool back = info.is_request;
  roce::TxPacket packet;
  packet.dest_qpn = back ? answered : bth.dest_qpn;
  const std::optional<roce::Path> path = PathOf(hit, back);
  if (packet.dest_qpn == roce::Qpn(0) || !path.has_value()) return std::nullopt;
  roce::FrameTemplate frame(*path);
  if (is_cnp) {
    packet.opcode = roce::Opcode::kCnp;
    packet.becn = true;
    const roce::CongestionParameters marks;
    frame = frame.ForNotifications(marks.cnp_dscp, marks.cnp_priority);
  } else {
    const bool is_xrc = info.transport == roce::Transport::kXrc;
    packet.opcode = is_xrc ? roce::Opcode::kXrcAcknowledge : roce::Opcode::kRcAcknowledge;
    packet.psn = bth.psn;
    packet.ext.aeth.syndrome = injection.syndrome;
    const std::span<const std::byte> transport = hit.transport();
    if (info.Has(roce::ExtHeader::kAeth) && transport.size() >= info.header_bytes) {
      packet.ext.aeth.msn =
          roce::Aeth::Load(transport.data() + info.OffsetOf(roce::ExtHeader::kAeth)).msn;
    }
  }
  const uint32_t bytes =
      roce::EncodeFrame(frame, packet, static_cast<const std::byte*>(nullptr), 0, out.data());
  return InjectedFrame{Finish(bytes, out), back ? Opposite(hit.direction) : hit.direction};
}

// A datagram with a MAD to the sender of the packet, which has one too.
std::optional<InjectedFrame> MakeMad(const Injection& injection, const FaultFrame& hit,
                                     std::span<std::byte> out) {
  const std::span<const std::byte> transport = hit.transport();
  const std::optional<roce::Path> path = PathOf(hit, /*back=*/true);
  if (transport.size() < kMadOffset + roce::kMadBytes ||
      injection.bytes.size() != roce::kMadBytes || hit.bth().opcode != roce::Opcode::kUdSendOnly ||
      !path.has_value()) {
    return std::nullopt;
  }
  const std::byte* const received = transport.data() + kMadOffset;
  std::array<std::byte, roce::kMadBytes> mad;
  std::copy(injection.bytes.begin(), injection.bytes.end(), mad.begin());
  for (const Injection::Copy& copy : injection.copies) {
    std::memcpy(mad.data() + copy.to, received + copy.from, copy.bytes);
  }
  roce::TxPacket packet;
  packet.opcode = roce::Opcode::kUdSendOnly;
  packet.dest_qpn = roce::kGsiQpn;
  packet.psn = hit.bth().psn;
  packet.payload_length = roce::kMadBytes;
  packet.ext.deth = {.qkey = roce::kGsiQkey, .src_qpn = roce::kGsiQpn};
  const uint32_t bytes =
      roce::EncodeFrame(roce::FrameTemplate(*path), packet, mad.data(), 0, out.data());
  return InjectedFrame{bytes, Opposite(hit.direction)};
}

std::optional<InjectedFrame> Repeat(std::span<const std::byte> frame, LinkDirection direction,
                                    std::span<std::byte> out) {
  if (frame.empty() || frame.size() > out.size()) return std::nullopt;
  std::memcpy(out.data(), frame.data(), frame.size());
  return InjectedFrame{Finish(static_cast<uint32_t>(frame.size()), out), direction};
}

}  // namespace

std::optional<InjectedFrame> MakeInjected(const Injection& injection, const FaultFrame& hit,
                                          roce::Qpn answered, std::span<const std::byte> first,
                                          std::span<std::byte> out) {
  switch (injection.kind) {
    case Injection::Kind::kCnp:
    case Injection::Kind::kNak:
      return MakeAnswer(injection, hit, answered, out);
    case Injection::Kind::kMad:
      return MakeMad(injection, hit, out);
    case Injection::Kind::kStale:
      return Repeat(first, hit.direction, out);
    case Injection::Kind::kFrame:
      return Repeat(injection.bytes, hit.direction, out);
    case Injection::Kind::kNone:
      break;
  }
  return std::nullopt;
}

}  // namespace roci::dataplane
