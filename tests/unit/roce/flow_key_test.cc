// Header fields that flow rules match, and their RSS hash.
#include "roce/flow_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

#include "roce/toeplitz.h"

namespace roci::roce {
namespace {

using Bytes = std::vector<uint8_t>;

FlowKey Parse(const Bytes& frame, bool expected = true) {
  FlowKey key;
  EXPECT_EQ(ParseFlowKey(std::as_bytes(std::span(frame)), key), expected);
  return key;
}

Bytes Ethernet(uint16_t ether_type, const Bytes& rest) {
  Bytes frame{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  frame.push_back(static_cast<uint8_t>(ether_type >> 8));
  frame.push_back(static_cast<uint8_t>(ether_type));
  frame.insert(frame.end(), rest.begin(), rest.end());
  return frame;
}

// An IPv4 header with `words` words of options, followed by `rest`.
Bytes Ipv4(uint8_t protocol, const Bytes& rest, uint16_t fragment = 0x4000, uint8_t words = 0) {
  const size_t header_bytes = 20u + words * 4u;
  const size_t total = header_bytes + rest.size();
  const uint8_t header[20] = {static_cast<uint8_t>(0x45 + words),
                              0x28,
                              static_cast<uint8_t>(total >> 8),
                              static_cast<uint8_t>(total),
                              0,
                              0,
                              static_cast<uint8_t>(fragment >> 8),
                              static_cast<uint8_t>(fragment),
                              63,
                              protocol,
                              0,
                              0,
                              10,
                              1,
                              2,
                              3,
                              10,
                              4,
                              5,
                              6};
  Bytes packet(total, 1);
  std::copy(std::begin(header), std::end(header), packet.begin());
  std::copy(rest.begin(), rest.end(), packet.begin() + static_cast<ptrdiff_t>(header_bytes));
  return packet;
}

const Bytes kUdpHeader{0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0};
constexpr uint16_t Be(uint16_t value) { return __builtin_bswap16(value); }

TEST(FlowKeyTest, UdpOverIpv4) {
  const FlowKey key = Parse(Ethernet(0x0800, Ipv4(17, kUdpHeader)));
  EXPECT_EQ(key.dst_mac, (Mac{{1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(key.src_mac, (Mac{{7, 8, 9, 10, 11, 12}}));
  EXPECT_EQ(key.layers, kFlowLayerIpv4 | kFlowLayerUdp);
  EXPECT_EQ(key.ether_type, Be(0x0800));
  EXPECT_EQ(key.src_ip[0], 10);
  EXPECT_EQ(key.dst_ip[3], 6);
  EXPECT_EQ(key.protocol, 17);
  EXPECT_EQ(key.traffic_class, 0x28);
  EXPECT_EQ(key.hop_limit, 63);
  EXPECT_EQ(key.ip_flags, kFlowDontFragment);
  EXPECT_EQ(key.src_port, Be(0x1234));
  EXPECT_EQ(key.dst_port, Be(0x5678));
}

TEST(FlowKeyTest, OptionsAndFragments) {
  EXPECT_EQ(Parse(Ethernet(0x0800, Ipv4(17, kUdpHeader, 0, 10))).src_port, Be(0x1234));
  const FlowKey first = Parse(Ethernet(0x0800, Ipv4(17, kUdpHeader, 0x2000)));
  EXPECT_EQ(first.ip_flags, kFlowMoreFragments);
  EXPECT_EQ(first.layers, kFlowLayerIpv4 | kFlowLayerUdp);
  EXPECT_EQ(Parse(Ethernet(0x0800, Ipv4(17, kUdpHeader, 0x0001))).layers, kFlowLayerIpv4)
      << "a later fragment has no ports";
}

TEST(FlowKeyTest, VlanTag) {
  Bytes tagged{0xAC, 0x0C, 0x08, 0x00};
  const Bytes ip = Ipv4(17, kUdpHeader);
  tagged.insert(tagged.end(), ip.begin(), ip.end());
  const FlowKey key = Parse(Ethernet(0x8100, tagged));
  EXPECT_EQ(key.layers, kFlowLayerVlan | kFlowLayerIpv4 | kFlowLayerUdp);
  EXPECT_EQ(key.vlan_tci, Be(0xAC0C));
  EXPECT_EQ(key.ether_type, Be(0x0800));
}

TEST(FlowKeyTest, TcpOverIpv6) {
  Bytes packet(40 + 20);
  packet[0] = 0x62;
  packet[1] = 0x8A;
  packet[2] = 0xBC;
  packet[3] = 0xDE;
  packet[5] = 20;
  packet[6] = 6;
  packet[7] = 9;
  packet[8] = 0x20;
  packet[39] = 0x77;
  packet[41] = 5;
  packet[43] = 6;
  const FlowKey key = Parse(Ethernet(0x86DD, packet));
  EXPECT_EQ(key.layers, kFlowLayerIpv6 | kFlowLayerTcp);
  EXPECT_EQ(key.traffic_class, 0x28);
  EXPECT_EQ(key.flow_label, __builtin_bswap32(0xABCDE));
  EXPECT_EQ(key.protocol, 6);
  EXPECT_EQ(key.hop_limit, 9);
  EXPECT_EQ(key.dst_ip[15], 0x77);
  EXPECT_EQ(key.src_port, Be(5));
  EXPECT_EQ(key.dst_port, Be(6));
  packet.resize(40 + 19);
  EXPECT_EQ(Parse(Ethernet(0x86DD, packet)).layers, kFlowLayerIpv6) << "half a TCP header";
  packet.resize(40 + 60);
  packet[4] = 0xFF;
  EXPECT_EQ(Parse(Ethernet(0x86DD, packet)).layers, kFlowLayerIpv6 | kFlowLayerTcp)
      << "a length that is too large";
}

// Truncated headers are reported as missing. The sanitizers check that nothing is read beyond the
// end.
TEST(FlowKeyTest, EveryLength) {
  const Bytes whole = Ethernet(0x0800, Ipv4(6, Bytes(20, 1)));
  for (size_t length = 0; length <= whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const FlowKey key = Parse(cut, length >= 14);
    const uint8_t layers = (length >= 34 ? kFlowLayerIpv4 : 0) | (length >= 54 ? kFlowLayerTcp : 0);
    EXPECT_EQ(key.layers, layers) << length;
  }
}

TEST(FlowKeyTest, AnyBytesAreTaken) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    Bytes frame(random() % 90);
    for (uint8_t& byte : frame) byte = static_cast<uint8_t>(random());
    if (frame.size() > 15 && i % 2 == 0) {
      frame[12] = i % 4 == 0 ? 0x08 : 0x86;
      frame[13] = i % 4 == 0 ? 0x00 : 0xDD;
    }
    const FlowKey key = Parse(frame, frame.size() >= 14);
    EXPECT_EQ(key.layers & ~kFlowLayers, 0);
  }
}

// The verification suite of RSS (addresses and ports of TCP over IPv4 and IPv6).
constexpr ToeplitzKey kKey = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                              0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                              0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                              0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

TEST(ToeplitzTest, KnownAnswers) {
  FlowKey v4{};
  v4.layers = kFlowLayerIpv4 | kFlowLayerTcp;
  v4.src_ip = {66, 9, 149, 187};
  v4.dst_ip = {161, 142, 100, 80};
  v4.src_port = Be(2794);
  v4.dst_port = Be(1766);
  const uint32_t v4_addresses = kHashSrcIpv4 | kHashDstIpv4;
  EXPECT_EQ(HashFlow(kKey, v4_addresses, v4), 0x323e8fc2u);
  EXPECT_EQ(HashFlow(kKey, kHashFields, v4), 0x51ccc178u);
  EXPECT_EQ(HashFlow(kKey, v4_addresses | kHashSrcPortUdp | kHashDstPortUdp, v4), 0x323e8fc2u)
      << "no UDP ports here";
  EXPECT_EQ(HashFlow(kKey, kHashSrcIpv6 | kHashDstIpv6, v4), 0u);

  FlowKey v6{};
  v6.layers = kFlowLayerIpv6 | kFlowLayerTcp;
  v6.src_ip = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7};
  v6.dst_ip = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 1};
  v6.src_port = Be(2794);
  v6.dst_port = Be(1766);
  EXPECT_EQ(HashFlow(kKey, kHashSrcIpv6 | kHashDstIpv6, v6), 0x2cc18cd5u);
  EXPECT_EQ(HashFlow(kKey, kHashFields, v6), 0x40207d3du);
}

}  // namespace
}  // namespace roci::roce
