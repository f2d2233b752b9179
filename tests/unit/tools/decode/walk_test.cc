// Finding the RoCE packet in a frame: link layers, tags, tunnels, and headers that end the search.
#include "tools/decode/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/tools/decode/decode_frames.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/describe.h"

namespace roci::tools {
namespace {

TEST(DissectTest, OtherLinkLayers) {
  const Bytes ethernet = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5);
  const Bytes network(ethernet.begin() + 14, ethernet.end());
  Bytes cooked(16);
  cooked[14] = std::byte{0x08};
  cooked.insert(cooked.end(), network.begin(), network.end());
  Bytes cooked2(20);
  cooked2[0] = std::byte{0x08};
  cooked2.insert(cooked2.end(), network.begin(), network.end());
  Bytes tagged(16);
  tagged[14] = std::byte{0x81};
  for (const int byte : {0x00, 0x05, 0x08, 0x00}) tagged.push_back(static_cast<std::byte>(byte));
  tagged.insert(tagged.end(), network.begin(), network.end());
  Bytes loop = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{2}};
  loop.insert(loop.end(), network.begin(), network.end());
  Bytes null = loop;
  std::reverse(null.begin(), null.begin() + 4);
  const Bytes ethernet6 = Encode(TestPath(true), roce::Opcode::kRcSendOnly, 5);
  Bytes null6 = {std::byte{30}, std::byte{0}, std::byte{0}, std::byte{0}};
  null6.insert(null6.end(), ethernet6.begin() + 14, ethernet6.end());
  // A provider's tag around a customer's.
  Bytes stacked(ethernet.begin(), ethernet.begin() + 12);
  for (const int byte : {0x88, 0xA8, 0x20, 0x07, 0x81, 0x00, 0x00, 0x09, 0x08, 0x00}) {
    stacked.push_back(static_cast<std::byte>(byte));
  }
  stacked.insert(stacked.end(), network.begin(), network.end());
  for (const auto& [bytes, link_type] : {std::pair{network, kLinkTypeRaw},
                                         {network, kLinkTypeIpv4},
                                         {network, kLinkTypeOldRaw},
                                         {network, kLinkTypeOpenBsdRaw},
                                         {tagged, kLinkTypeLinuxSll},
                                         {loop, kLinkTypeLoop},
                                         {loop, kLinkTypeNull},
                                         {null, kLinkTypeNull},
                                         {null6, kLinkTypeNull},
                                         {cooked, kLinkTypeLinuxSll},
                                         {cooked2, kLinkTypeLinuxSll2},
                                         {stacked, kLinkTypeEthernet}}) {
    const auto frame = DissectWhole(bytes, link_type);
    ASSERT_TRUE(frame.has_value()) << link_type;
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame) << link_type;
    EXPECT_EQ(frame->ethernet.has_value(), link_type == kLinkTypeEthernet);
  }
  EXPECT_EQ(DissectWhole(stacked)->vlans.size(), 2u);
  EXPECT_EQ(DissectWhole(tagged, kLinkTypeLinuxSll)->vlans.size(), 1u);
  EXPECT_EQ(KindOf(ethernet, 147), FrameKind::kLinkType);
  loop[3] = std::byte{7};
  EXPECT_EQ(KindOf(loop, kLinkTypeLoop), FrameKind::kOther);
}

// Puts extension headers between the IPv6 header and UDP.
Bytes WithExtensions(Bytes frame, uint8_t first, std::initializer_list<int> headers) {
  frame[20] = static_cast<std::byte>(first);
  roce::StoreBe<uint16_t>(
      &frame[18], static_cast<uint16_t>(roce::LoadBe<uint16_t>(&frame[18]) + headers.size()));
  Bytes extensions;
  for (const int byte : headers) extensions.push_back(static_cast<std::byte>(byte));
  frame.insert(frame.begin() + 54, extensions.begin(), extensions.end());
  return frame;
}

TEST(DissectTest, ExtensionHeadersDoNotHideRoce) {
  const Bytes plain = Encode(TestPath(true), roce::Opcode::kRcSendOnly, 8);
  const Bytes options = WithExtensions(plain, 0,
                                       {60, 0, 1, 4, 0, 0, 0, 0,  //
                                        17, 0, 1, 4, 0, 0, 0, 0});
  const auto frame = DissectWhole(options);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->malformed, roce::DropReason::kIpv6Extension);
  EXPECT_EQ(frame->ipv6_extension_bytes, 16u);
  EXPECT_EQ(frame->icrc, IcrcVerdict::kUnchecked);
  EXPECT_EQ(frame->payload_bytes, 8u);
  EXPECT_EQ(frame->trailer_bytes, 0u);
  EXPECT_TRUE(frame->failed());
  EXPECT_EQ(Describe({.bytes = options}, *frame)["malformed"], "ipv6_extension");
  // The first fragment is shown, later ones could be anything.
  EXPECT_EQ(DissectWhole(WithExtensions(plain, 44, {17, 0, 0, 1, 0, 0, 0, 7}))->malformed,
            roce::DropReason::kIpv6Fragment);
  EXPECT_EQ(DissectWhole(WithExtensions(plain, 0,
                                        {44, 0, 1, 4, 0, 0, 0, 0,  //
                                         17, 0, 0, 1, 0, 0, 0, 7}))
                ->malformed,
            roce::DropReason::kIpv6Fragment);
  EXPECT_EQ(KindOf(WithExtensions(plain, 44, {17, 0, 0, 8, 0, 0, 0, 7})), FrameKind::kHidden);
  EXPECT_EQ(KindOf(WithExtensions(plain, 44, {58, 0, 0, 8, 0, 0, 0, 7})), FrameKind::kOther);
  EXPECT_EQ(KindOf(WithExtensions(plain, 0, {58, 0, 1, 4, 0, 0, 0, 0})), FrameKind::kOther);
  EXPECT_EQ(KindOf(WithExtensions(plain, 0, {17, 255, 1, 4, 0, 0, 0, 0})), FrameKind::kHeaders);
  // Longer chains than anybody has are not followed by gate 1, and at last not at all.
  Bytes chain = plain;
  for (int i = 0; i < 9; ++i)
    chain = WithExtensions(chain, 60, {i == 0 ? 17 : 60, 0, 1, 4, 0, 0, 0, 0});
  EXPECT_EQ(DissectWhole(chain)->malformed, roce::DropReason::kIpv6Extension);
  for (size_t i = 9; i < kMaxHeaders; ++i) {
    chain = WithExtensions(chain, 60, {60, 0, 1, 4, 0, 0, 0, 0});
  }
  EXPECT_EQ(KindOf(chain), FrameKind::kHeaders);
}

TEST(DissectTest, FramesOfOtherProtocols) {
  Bytes other_port = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  other_port[36] ^= std::byte{1};
  EXPECT_FALSE(DissectWhole(other_port).has_value());
  Bytes arp(60);
  arp[12] = std::byte{8};
  arp[13] = std::byte{6};
  EXPECT_FALSE(DissectWhole(arp).has_value());
  EXPECT_FALSE(DissectWhole({}).has_value());
  EXPECT_EQ(KindOf(other_port), FrameKind::kOther);
  EXPECT_EQ(KindOf(arp), FrameKind::kOther);
}

// ---- Tunnels ----

const Bytes kMacs = ToBytes({2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8});

Bytes Be16(size_t value) {
  return ToBytes({static_cast<int>(value >> 8) & 0xFF, static_cast<int>(value) & 0xFF});
}

Bytes InEthernet(int type, const Bytes& carried) {
  return Join({kMacs, Be16(static_cast<size_t>(type)), carried});
}

// `fragment` as in the header; the length is right for a packet that is whole.
Bytes InIpv4(int protocol, const Bytes& carried, int fragment = 0) {
  return Join({ToBytes({0x45, 0}), Be16(20 + carried.size()), ToBytes({0, 0}),
               Be16(static_cast<size_t>(fragment)), ToBytes({64, protocol, 0, 0}),
               ToBytes({192, 0, 2, 1, 192, 0, 2, 2}), carried});
}

Bytes InIpv6(int next_header, const Bytes& carried) {
  Bytes address(16);
  address[0] = std::byte{0xFE};
  return Join({ToBytes({0x60, 0, 0, 0}), Be16(carried.size()), ToBytes({next_header, 64}), address,
               address, carried});
}

Bytes InUdp(size_t port, const Bytes& carried) {
  return Join({Be16(50000), Be16(port), Be16(8 + carried.size()), ToBytes({0, 0}), carried});
}

struct Tunnel {
  const char* name;
  Bytes frame;
  std::vector<std::string> in;  // what stands around RoCE, as the words have it
};

std::vector<Tunnel> Tunnels(bool is_ipv6) {
  const Bytes frame = Encode(TestPath(is_ipv6), roce::Opcode::kRcSendOnlyImm, 5);
  const Bytes ip(frame.begin() + 14, frame.end());
  const int type = is_ipv6 ? 0x86DD : 0x0800;
  const Bytes type_bytes = Be16(static_cast<size_t>(type));
  const Bytes vxlan = InUdp(4789, Join({ToBytes({8, 0, 0, 0, 0, 0x12, 0x34, 0}), frame}));
  const Bytes vxlan_ip =
      InUdp(4790, Join({ToBytes({0x0C, 0, 0, is_ipv6 ? 2 : 1, 0, 0, 7, 0}), ip}));
  const Bytes geneve =
      InUdp(6081, Join({ToBytes({2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 1, 0, 0, 0, 0}), frame}));
  const Bytes gre = Join({ToBytes({0, 0}), type_bytes, ip});
  const Bytes nvgre = Join({ToBytes({0x20, 0, 0x65, 0x58, 0, 0, 3, 9}), frame});
  const Bytes full_gre =
      Join({ToBytes({0xB0, 0}), type_bytes, ToBytes({1, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1}), ip});
  const Bytes erspan1 = Join({ToBytes({0, 0, 0x88, 0xBE}), frame});
  const Bytes erspan2 =
      Join({ToBytes({0x10, 0, 0x88, 0xBE, 0, 0, 0, 1, 0x10, 0, 0, 77, 0, 0, 0, 0}), frame});
  const Bytes erspan3 = Join({ToBytes({0x10, 0, 0x22, 0xEB, 0, 0, 0, 1, 0x20, 0, 0, 78}),
                              ToBytes({0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}), frame});
  const Bytes pptp = Join({ToBytes({0x30, 0x81, 0x88, 0x0B, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 2}),
                           ToBytes({0xFF, 0x03, is_ipv6 ? 0x57 : 0x21}), ip});
  const Bytes nsh = Join({ToBytes({0, 0x02, 0x02, 3, 0, 0, 9, 255}), frame});
  const Bytes labels = ToBytes({0, 1, 0x00, 64, 0, 2, 0x01, 64});
  const Bytes ppp = Join({ToBytes({0, is_ipv6 ? 0x57 : 0x21}), ip});
  const Bytes backbone = Join({ToBytes({0, 0, 1, 1}), frame});
  const int ip_in_ip = is_ipv6 ? 41 : 4;
  return {
      {"vxlan", InEthernet(0x0800, InIpv4(17, vxlan)), {"eth", "ipv4", "udp", "vxlan vni=4660"}},
      {"vxlan6", InEthernet(0x86DD, InIpv6(17, vxlan)), {"eth", "ipv6", "udp", "vxlan vni=4660"}},
      {"vxlan-gpe", InEthernet(0x0800, InIpv4(17, vxlan_ip)), {"ipv4", "udp", "vxlan vni=7"}},
      {"geneve", InEthernet(0x0800, InIpv4(17, geneve)), {"eth", "ipv4", "udp", "geneve vni=5"}},
      {"gre", InEthernet(0x0800, InIpv4(47, gre)), {"ipv4", "gre"}},
      {"gre6", InEthernet(0x86DD, InIpv6(47, gre)), {"ipv6", "gre"}},
      {"gre-in-udp", InEthernet(0x0800, InIpv4(17, InUdp(4754, gre))), {"ipv4", "udp", "gre"}},
      {"nvgre", InEthernet(0x0800, InIpv4(47, nvgre)), {"eth", "ipv4", "gre key=777"}},
      {"full gre", InEthernet(0x0800, InIpv4(47, full_gre)), {"ipv4", "gre key=4"}},
      {"erspan1", InEthernet(0x0800, InIpv4(47, erspan1)), {"eth", "ipv4", "gre"}},
      {"erspan2",
       InEthernet(0x0800, InIpv4(47, erspan2)),
       {"eth", "ipv4", "gre", "erspan session=77"}},
      {"erspan3",
       InEthernet(0x0800, InIpv4(47, erspan3)),
       {"eth", "ipv4", "gre", "erspan3 session=78"}},
      {"pptp", InEthernet(0x0800, InIpv4(47, pptp)), {"ipv4", "gre key=6", "ppp"}},
      {"nsh", InEthernet(0x894F, nsh), {"eth", "nsh path=9"}},
      {"ip in ip", InEthernet(0x0800, InIpv4(ip_in_ip, ip)), {"ipv4"}},
      {"ip in ip6", InEthernet(0x86DD, InIpv6(ip_in_ip, ip)), {"ipv6"}},
      {"etherip",
       InEthernet(0x0800, InIpv4(97, Join({ToBytes({0x30, 0}), frame}))),
       {"eth", "ipv4", "etherip"}},
      {"mpls", InEthernet(0x8847, Join({labels, ip})), {"mpls label=16", "mpls label=32"}},
      {"mpls in ip",
       InEthernet(0x0800, InIpv4(137, Join({labels, ip}))),
       {"ipv4", "mpls label=16", "mpls label=32"}},
      {"pseudowire",
       InEthernet(0x8847, Join({labels, frame})),
       {"eth", "mpls label=16", "mpls label=32"}},
      {"pseudowire with control word",
       InEthernet(0x8848, Join({labels, ToBytes({0, 0, 0, 5}), frame})),
       {"eth", "mpls label=16", "mpls label=32"}},
      {"pppoe",
       InEthernet(0x8864, Join({ToBytes({0x11, 0, 0, 3}), Be16(ppp.size()), ppp})),
       {"pppoe session=3", "ppp"}},
      {"snap",
       InEthernet(static_cast<int>(8 + ip.size()),
                  Join({ToBytes({0xAA, 0xAA, 3, 0, 0, 0}), type_bytes, ip})),
       {"llc"}},
      {"backbone",
       InEthernet(0x88A8, Join({Be16(5), Be16(0x88E7), backbone})),
       {"eth", "vlan vid=5", "pbb isid=257"}},
  };
}

std::vector<std::string> InOf(const nlohmann::ordered_json& words) {
  std::vector<std::string> all;
  for (const auto& outer : words.at("in")) {
    std::string text = outer.at("header");
    for (const auto& [name, value] : outer.items()) {
      if (value.is_number()) text += " " + name + "=" + value.dump();
    }
    all.push_back(text);
  }
  return all;
}

TEST(WalkTest, TunnelsDoNotHideRoce) {
  for (const bool is_ipv6 : {false, true}) {
    for (const Tunnel& tunnel : Tunnels(is_ipv6)) {
      SCOPED_TRACE(tunnel.name);
      const auto frame = DissectWhole(tunnel.frame);
      ASSERT_TRUE(frame.has_value());
      EXPECT_FALSE(frame->failed());
      EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame);
      EXPECT_EQ(frame->ipv6.has_value(), is_ipv6);
      EXPECT_EQ(frame->payload_bytes, 5u);
      EXPECT_EQ(frame->trailer_bytes, 0u);
      EXPECT_EQ(InOf(Describe({.bytes = tunnel.frame}, *frame)), tunnel.in);

      // A capture that says that there was less than it has is taken at what it has.
      EXPECT_FALSE(Dissect(tunnel.frame, 6, kLinkTypeEthernet).roce->failed());

      // Padding behind the outermost packet is nothing of RoCE's, wherever that says its length.
      Bytes bad = Join({tunnel.frame, Bytes(4)});
      bad[tunnel.frame.size() - 1] ^= std::byte{1};
      EXPECT_EQ(DissectWhole(bad)->icrc, IcrcVerdict::kBad);
    }
  }
}

TEST(WalkTest, DescriptionsHaveTheEndsOfATunnel) {
  const Tunnel vxlan = Tunnels(false).front();
  const auto words = Describe({.bytes = vxlan.frame}, *DissectWhole(vxlan.frame));
  EXPECT_EQ(words["in"][1]["src"], "192.0.2.1");
  EXPECT_EQ(words["in"][1]["dst"], "192.0.2.2");
  EXPECT_EQ(words["eth"]["dst"], "02:00:00:00:00:01");
  const std::string line = DescribeInText(words);
  EXPECT_NE(line.find(" in{header=eth} in{header=ipv4 src=192.0.2.1 dst=192.0.2.2} in{header=udp} "
                      "in{header=vxlan vni=4660} eth{"),
            std::string::npos)
      << line;
}

TEST(WalkTest, TunnelsThatAreCutAnywhereAreNeitherGoodNorBad) {
  for (const Tunnel& tunnel : Tunnels(true)) {
    SCOPED_TRACE(tunnel.name);
    const std::span<const std::byte> all(tunnel.frame);
    for (size_t kept = 0; kept < all.size(); ++kept) {
      const auto [kind, frame, hidden_by] =
          Dissect(all.first(kept), static_cast<uint32_t>(all.size()), kLinkTypeEthernet);
      EXPECT_TRUE(kind == FrameKind::kCut || (frame && frame->cut && !frame->failed())) << kept;
      // Nothing says that there was more: a packet that is there fails.
      const auto short_frame = Dissect(all.first(kept), static_cast<uint32_t>(kept), 1);
      EXPECT_TRUE(short_frame.kind == FrameKind::kHeaders || short_frame.roce->failed()) << kept;
    }
  }
}

TEST(WalkTest, APacketEndsWhereItsTunnelDoes) {
  const Bytes roce_frame = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 400);
  const Bytes ip(roce_frame.begin() + 14, roce_frame.end());
  const Bytes first(ip.begin(), ip.begin() + 200);
  // A first fragment has less than all, and that is no fault.
  const Bytes fragment = InEthernet(0x0800, InIpv4(4, first, 0x2000));
  const auto frame = DissectWhole(fragment);
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(frame->cut);
  EXPECT_FALSE(frame->failed());
  // A packet that is longer than the one that carries it is malformed, whatever lies behind.
  const Bytes spilled = Join({InEthernet(0x0800, InIpv4(4, first)), Bytes(400)});
  EXPECT_EQ(DissectWhole(spilled)->malformed, roce::DropReason::kIpLength);
}

TEST(WalkTest, HeadersThatMayHideRoceAreNamed) {
  const Bytes rest(64);
  for (const auto& [frame, by] : {
           std::pair{InEthernet(0x88E5, rest), Header::kMacsec},
           {InEthernet(0x22F3, rest), Header::kTrill},
           {InEthernet(0x0800, InIpv4(50, rest)), Header::kEsp},
           {InEthernet(0x86DD, InIpv6(50, rest)), Header::kEsp},
           {InEthernet(0x0800, InIpv4(51, rest)), Header::kAuthentication},
           {InEthernet(0x0800, InIpv4(108, rest)), Header::kIpComp},
           {InEthernet(0x0800, InIpv4(115, rest)), Header::kL2tp},
           {InEthernet(0x0800, InIpv4(17, InUdp(4500, rest))), Header::kEsp},
           {InEthernet(0x0800, InIpv4(17, InUdp(2152, rest))), Header::kGtp},
           {InEthernet(0x0800, InIpv4(17, rest, 0x2001)), Header::kLaterFragment},
           {InEthernet(0x0800, InIpv4(47, rest, 0x0001)), Header::kLaterFragment},
       }) {
    const Dissection found = Dissect(frame, static_cast<uint32_t>(frame.size()), 1);
    EXPECT_EQ(found.kind, FrameKind::kHidden) << HeaderName(by);
    EXPECT_STREQ(HeaderName(found.hidden_by), HeaderName(by));
  }
  // Nothing of ours is in TCP.
  EXPECT_EQ(KindOf(InEthernet(0x0800, InIpv4(6, rest, 0x0001))), FrameKind::kOther);
}

TEST(WalkTest, UnknownVersionsAndEndlessStacksAreNotUnderstood) {
  const Bytes rest(64);
  const Bytes gre2 = Join({ToBytes({0, 2, 8, 0}), rest});
  EXPECT_EQ(KindOf(InEthernet(0x0800, InIpv4(47, gre2))), FrameKind::kHeaders);
  const Bytes geneve1 = Join({ToBytes({0x40, 0, 0x65, 0x58}), rest});
  EXPECT_EQ(KindOf(InEthernet(0x0800, InIpv4(17, InUdp(6081, geneve1)))), FrameKind::kHeaders);
  EXPECT_EQ(KindOf(InEthernet(0x894F, rest)), FrameKind::kHeaders);  // NSH without a length
  EXPECT_EQ(KindOf(InEthernet(0x8847, Bytes(4096))), FrameKind::kHeaders);
  Bytes tags;
  for (size_t i = 0; i < kMaxHeaders; ++i) tags = Join({ToBytes({0, 1, 0x81, 0x00}), tags});
  EXPECT_EQ(KindOf(InEthernet(0x8100, tags)), FrameKind::kHeaders);
}

}  // namespace
}  // namespace roci::tools
