#include "tools/judge/seen_frame.h"

#include <algorithm>
#include <cstring>

#include "roce/parse.h"
#include "roce/work.h"

namespace roci::tools::judge {
namespace {

using roce::DropReason;
using Bytes = std::span<const std::byte>;

constexpr size_t kLongestPacket = 65535 + roce::Ipv6Header::kBytes;

// Saturates: a capture may state any time.
int64_t TimeNs(const CaptureRecord& record) {
  constexpr int64_t kMostSeconds = 9'000'000'000;
  const int64_t seconds = std::clamp(record.seconds, -kMostSeconds, kMostSeconds);
  return seconds * static_cast<int64_t>(roce::kNsPerSecond) + record.nanoseconds;
}

// The index of the packet's own IP header in the path.
std::optional<size_t> FindIp(const Walk& walk) {
  for (size_t i = walk.path.size(); i-- > 0;) {
    const Header header = walk.path[i].header;
    if (header == Header::kIpv4 || header == Header::kIpv6) return i;
  }
  return std::nullopt;
}

// The innermost tag after the last Ethernet header.
uint16_t VlanOf(const Walk& walk, size_t ip) {
  for (size_t i = ip; i-- > 0;) {
    if (walk.path[i].header == Header::kVlan) return static_cast<uint16_t>(*walk.path[i].id);
    if (walk.path[i].header == Header::kEthernet) break;
  }
  return 0;
}

// The interface index that Linux's cooked captures have in each frame.
uint32_t InterfaceOf(const CaptureRecord& record) {
  constexpr size_t kIndexAt = 4;
  if (record.link_type != kLinkTypeLinuxSll2 || record.bytes.size() < kIndexAt + 4) {
    return record.interface;
  }
  return roce::LoadBe<uint32_t>(record.bytes.data() + kIndexAt);
}

}  // namespace

FrameParser::FrameParser() : plain_(roce::EthernetHeader::kBytes + kLongestPacket) {}

void FrameParser::TakePacket(SeenFrame& out) {
  const roce::Packet& packet = out.packet;
  out.kind = SeenKind::kPacket;
  out.src = packet.src_gid;
  out.dst = packet.dst_gid;
  out.dest_qpn = packet.dest_qpn;
  out.bth = packet.payload.data() - packet.info->header_bytes;
  out.icrc_is_good = !out.payload_is_whole || roce::CheckIcrc(packet) == DropReason::kNone;
}

// True: the frame is plain Ethernet, whole and well-formed.
bool FrameParser::ParsePlain(const CaptureRecord& record, SeenFrame& out) {
  if (record.link_type != kLinkTypeEthernet) return false;
  if (roce::ParseHeaders(record.bytes, out.packet) != DropReason::kNone) return false;
  out.payload_is_whole = true;
  TakePacket(out);
  return true;
}

void FrameParser::ParseWalked(const CaptureRecord& record, const Walk& walk, SeenFrame& out) {
  const std::optional<size_t> ip = FindIp(walk);
  if (!ip) return;
  const PathHeader& network = walk.path[*ip];
  const bool is_ipv6 = network.header == Header::kIpv6;
  const Bytes captured = record.bytes.subspan(network.at, network.end - network.at);
  const size_t header = is_ipv6 ? roce::Ipv6Header::kBytes : roce::Ipv4Header::kBytes;
  size_t stated = header;
  if (is_ipv6) {
    const auto ipv6 = roce::Ipv6Header::Load(captured.data());
    out.src = roce::Gid::FromIpv6(ipv6.src);
    out.dst = roce::Gid::FromIpv6(ipv6.dst);
    stated += ipv6.payload_length;
  } else {
    const auto ipv4 = roce::Ipv4Header::Load(captured.data());
    out.src = roce::Gid::FromIpv4(ipv4.src);
    out.dst = roce::Gid::FromIpv4(ipv4.dst);
    stated = ipv4.total_length;
  }
  const size_t bth_at = walk.path.back().at - network.at + roce::UdpHeader::kBytes;
  if (captured.size() >= bth_at + roce::Bth::kBytes) {
    out.dest_qpn = roce::Bth::Load(captured.data() + bth_at).dest_qpn;
  }
  // A cut packet is parsed with arbitrary bytes after those of the capture.
  const bool is_cut = stated > captured.size() && network.wire_end >= network.at + stated;
  const size_t whole = is_cut ? stated : captured.size();
  const uint16_t vlan = VlanOf(walk, *ip);
  if (whole > kLongestPacket) return;
  roce::EthernetHeader link;
  link.ether_type = is_ipv6 ? roce::kEtherTypeIpv6 : roce::kEtherTypeIpv4;
  link.Store(plain_.data());
  std::memcpy(plain_.data() + roce::EthernetHeader::kBytes, captured.data(),
              std::min(captured.size(), whole));
  const Bytes plain(plain_.data(), roce::EthernetHeader::kBytes + whole);
  if (is_cut && !out.dest_qpn) {
    out.kind = SeenKind::kCut;
    return;
  }
  out.malformed = roce::ParseHeaders(plain, out.packet);
  out.kind = SeenKind::kMalformed;
  if (out.malformed != DropReason::kNone) {
    // Only the headers up to the BTH are certain.
    if (is_cut) out.kind = SeenKind::kCut;
    return;
  }
  if (captured.size() < bth_at + out.packet.info->header_bytes) {
    out.kind = SeenKind::kCut;
    return;
  }
  out.packet.vlan_tci = vlan;
  out.payload_is_whole = !is_cut;
  TakePacket(out);
}

void FrameParser::Parse(const CaptureRecord& record, SeenFrame& out) {
  out.number = record.number;
  out.has_time = record.has_time;
  out.time_ns = TimeNs(record);
  out.interface = InterfaceOf(record);
  out.kind = SeenKind::kOther;
  out.is_v1 = out.hidden = out.payload_is_whole = out.icrc_is_good = false;
  out.malformed = DropReason::kNone;
  out.dest_qpn.reset();
  if (ParsePlain(record, out)) return;
  const Walk walk = WalkFrame(record.bytes, record.original_length, record.link_type);
  if (walk.end == Header::kRoceV2) {
    ParseWalked(record, walk, out);
  } else if (walk.end == Header::kTooShort && !walk.path.empty() &&
             walk.path.back().wire_end > walk.path.back().end) {
    out.kind = SeenKind::kCut;
    out.src = out.dst = {};
  } else {
    out.is_v1 = walk.end == Header::kRoceV1;
    out.hidden = MayHideRoce(walk.end) || walk.end == Header::kLinkType ||
                 walk.end == Header::kNotUnderstood;
  }
}

}  // namespace roci::tools::judge
