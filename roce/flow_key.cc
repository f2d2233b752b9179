#include "roce/flow_key.h"

#include <algorithm>

#include "roce/headers.h"

namespace roci::roce {
namespace {

constexpr uint8_t kTcp = 6;
constexpr uint8_t kUdp = 17;
constexpr size_t kTcpHeader = 20;

using Bytes = std::span<const std::byte>;

uint16_t Load16(Bytes bytes, size_t at) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

uint8_t Load8(Bytes bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

// `bytes`: the IP payload.
void ParsePorts(Bytes bytes, FlowKey& out) {
  const bool is_tcp = out.protocol == kTcp;
  if (!is_tcp && out.protocol != kUdp) return;
  if (bytes.size() < (is_tcp ? kTcpHeader : size_t{UdpHeader::kBytes})) return;
  out.layers |= is_tcp ? kFlowLayerTcp : kFlowLayerUdp;
  out.src_port = Load16(bytes, 0);
  out.dst_port = Load16(bytes, 2);
}

void ParseIpv4(Bytes bytes, FlowKey& out) {
  if (bytes.size() < Ipv4Header::kBytes) return;
  const uint8_t version_ihl = Load8(bytes, 0);
  const size_t header = (version_ihl & 0xFu) * 4u;
  const size_t total = std::min<size_t>(LoadBe<uint16_t>(bytes.data() + 2), bytes.size());
  if ((version_ihl >> 4) != 4 || header < Ipv4Header::kBytes || total < header) return;
  const auto fragment = LoadBe<uint16_t>(bytes.data() + 6);
  out.layers |= kFlowLayerIpv4;
  out.traffic_class = Load8(bytes, 1);
  out.hop_limit = Load8(bytes, 8);
  out.protocol = Load8(bytes, 9);
  out.ip_flags =
      static_cast<uint8_t>(((fragment & Ipv4Header::kDontFragment) != 0 ? kFlowDontFragment : 0) |
                           ((fragment & Ipv4Header::kMoreFragments) != 0 ? kFlowMoreFragments : 0));
  std::memcpy(out.src_ip.data(), bytes.data() + 12, 4);
  std::memcpy(out.dst_ip.data(), bytes.data() + 16, 4);
  if ((fragment & Ipv4Header::kOffsetMask) == 0) {
    ParsePorts(bytes.subspan(header, total - header), out);
  }
}

void ParseIpv6(Bytes bytes, FlowKey& out) {
  if (bytes.size() < Ipv6Header::kBytes) return;
  if ((Load8(bytes, 0) >> 4) != 6) return;
  const size_t payload =
      std::min<size_t>(LoadBe<uint16_t>(bytes.data() + 4), bytes.size() - Ipv6Header::kBytes);
  const auto host = LoadBe<uint32_t>(bytes.data());
  out.layers |= kFlowLayerIpv6;
  out.traffic_class = static_cast<uint8_t>(host >> 20);
  StoreBe(reinterpret_cast<std::byte*>(&out.flow_label), host & 0xFFFFF);
  out.protocol = Load8(bytes, 6);
  out.hop_limit = Load8(bytes, 7);
  std::memcpy(out.src_ip.data(), bytes.data() + 8, 16);
  std::memcpy(out.dst_ip.data(), bytes.data() + 24, 16);
  ParsePorts(bytes.subspan(Ipv6Header::kBytes, payload), out);
}

}  // namespace

bool ParseFlowKey(std::span<const std::byte> frame, FlowKey& out) {
  out = FlowKey{};
  if (frame.size() < EthernetHeader::kBytes) return false;
  std::memcpy(out.dst_mac.bytes.data(), frame.data(), 6);
  std::memcpy(out.src_mac.bytes.data(), frame.data() + 6, 6);
  size_t at = 12;
  if (LoadBe<uint16_t>(frame.data() + at) == kEtherTypeVlan &&
      frame.size() >= EthernetHeader::kBytes + VlanTag::kBytes) {
    out.layers |= kFlowLayerVlan;
    out.vlan_tci = Load16(frame, at + 2);
    at += VlanTag::kBytes;
  }
  out.ether_type = Load16(frame, at);
  const auto ether_type = LoadBe<uint16_t>(frame.data() + at);
  const Bytes rest = frame.subspan(at + 2);
  if (ether_type == kEtherTypeIpv4) ParseIpv4(rest, out);
  if (ether_type == kEtherTypeIpv6) ParseIpv6(rest, out);
  return true;
}

}  // namespace roci::roce
