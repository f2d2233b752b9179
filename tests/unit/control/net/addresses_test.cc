#include "control/net/addresses.h"

#include <gtest/gtest.h>

namespace roci::control {
namespace {

constexpr roce::Mac kMac{{0x02, 0x72, 0x6f, 0x63, 0x69, 0x00}};

TEST(IpTextTest, ParsesAndPrints) {
  EXPECT_EQ(MacText(*ParseMac("02:72:6F:63:69:0a")), "02:72:6f:63:69:0a");
  EXPECT_FALSE(ParseMac("02:72:6f:63:69"));
  EXPECT_FALSE(ParseMac("02-72-6f-63-69-00"));
  EXPECT_FALSE(ParseMac("02:72:6f:63:69:0g"));
  EXPECT_EQ(GidText(*ParseIp("10.99.0.1")), "0000:0000:0000:0000:0000:ffff:0a63:0001");
  EXPECT_EQ(IpText(*ParseIp("fd00:0::1")), "fd00::1");
  EXPECT_EQ(ParseInterfaceAddress("10.0.0.1")->prefix_length, 32);
  EXPECT_EQ(ParseInterfaceAddress("::1")->prefix_length, 128);
  EXPECT_FALSE(ParseInterfaceAddress("10.0.0.1/"));
  EXPECT_FALSE(ParseInterfaceAddress("10.0.0.1/-1"));
  EXPECT_FALSE(ParseInterfaceAddress("10.0.0.1/33"));
  EXPECT_FALSE(ParseInterfaceAddress("fd00::1/129"));
}

TEST(IpTextTest, NetworksCompareTheirPrefixOnly) {
  const InterfaceAddress v4 = *ParseInterfaceAddress("10.1.2.3/20");
  EXPECT_TRUE(SameNetwork(v4, *ParseIp("10.1.15.255")));
  EXPECT_FALSE(SameNetwork(v4, *ParseIp("10.1.16.0")));
  EXPECT_FALSE(SameNetwork(*ParseInterfaceAddress("::1/0"), *ParseIp("10.1.2.3")));
  EXPECT_TRUE(SameNetwork(*ParseInterfaceAddress("1.2.3.4/0"), *ParseIp("10.1.2.3")));
  EXPECT_TRUE(SameNetwork(*ParseInterfaceAddress("fd00::1/128"), *ParseIp("fd00::1")));
  EXPECT_FALSE(SameNetwork(*ParseInterfaceAddress("fd00::1/127"), *ParseIp("fd00::2")));
}

TEST(IpTextTest, LinkLocalFollowsTheMac) {
  EXPECT_EQ(IpText(LinkLocal(kMac)), "fe80::72:6fff:fe63:6900");
  EXPECT_EQ(Eui64(kMac), 0x00726ffffe636900u);
}

TEST(AddressTableTest, IsDenseAndOrdered) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("fd00::1/64"),
                                               *ParseInterfaceAddress("10.0.0.1/24"),
                                               {LinkLocal(kMac), 64},
                                               *ParseInterfaceAddress("10.0.1.1/24"),
                                               *ParseInterfaceAddress("10.0.0.1/8")};
  const AddressTable table(kMac, given, {}, {});
  ASSERT_EQ(table.size(), 4u) << "doubles are dropped";
  EXPECT_EQ(table.At(0)->gid, LinkLocal(kMac));
  EXPECT_EQ(IpText(table.At(1)->gid), "10.0.0.1");
  EXPECT_EQ(IpText(table.At(2)->gid), "10.0.1.1");
  EXPECT_EQ(IpText(table.At(3)->gid), "fd00::1");
  EXPECT_EQ(table.At(4), nullptr);
  EXPECT_TRUE(table.IsOwn({*ParseIp("10.0.1.1")}));
  EXPECT_FALSE(table.IsOwn({*ParseIp("10.0.1.2")}));
  EXPECT_TRUE(table.HasSolicitedNode({SolicitedNodeGroup(*ParseIp("fd00::1"))}));
  EXPECT_FALSE(table.HasSolicitedNode({SolicitedNodeGroup(*ParseIp("fd00::2"))}));
}

TEST(AddressTableTest, RoutesToNeighboursAndGateways) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("10.0.0.1/24")};
  const AddressTable table(kMac, given, *ParseIp("10.0.0.254"), {});
  EXPECT_EQ(table.NextHop({*ParseIp("10.0.0.9")}), ParseIp("10.0.0.9"));
  EXPECT_EQ(table.NextHop({*ParseIp("10.0.1.9")}), ParseIp("10.0.0.254"));
  EXPECT_EQ(table.NextHop({*ParseIp("fe80::1")}), ParseIp("fe80::1"));
  EXPECT_EQ(table.NextHop({*ParseIp("2001:db8::1")}), std::nullopt);
}

TEST(AddressTableTest, EntriesKeepTheirIndices) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("10.0.0.1/24"),
                                               *ParseInterfaceAddress("10.0.1.1/24")};
  AddressTable table(kMac, given, *ParseIp("10.0.1.254"), {});
  EXPECT_EQ(*table.Add(*ParseInterfaceAddress("fd00::1/64")), 3u);
  EXPECT_TRUE(absl::IsAlreadyExists(table.Add(*ParseInterfaceAddress("10.0.0.1/8")).status()));
  EXPECT_TRUE(table.NextHop({*ParseIp("10.9.9.9")}).has_value());
  ASSERT_TRUE(table.Remove({*ParseIp("10.0.1.1")}).ok());
  EXPECT_EQ(table.NextHop({*ParseIp("10.9.9.9")}), std::nullopt) << "the gateway is out of reach";
  ASSERT_EQ(table.size(), 4u);
  EXPECT_TRUE(table.IsFree(2));
  EXPECT_EQ(*table.At(2), *table.At(0)) << "dense";
  EXPECT_EQ(table.IndexOf({*ParseIp("fd00::1")}), 3u);
  EXPECT_FALSE(table.IsOwn({*ParseIp("10.0.1.1")}));
  EXPECT_TRUE(absl::IsNotFound(table.Remove({*ParseIp("10.0.1.1")})));
  EXPECT_TRUE(absl::IsFailedPrecondition(table.Remove({LinkLocal(kMac)})));
  EXPECT_EQ(*table.Add(*ParseInterfaceAddress("10.0.2.1/24")), 2u) << "the lowest that is free";
  ASSERT_TRUE(table.Remove({*ParseIp("10.0.2.1")}).ok());
  ASSERT_TRUE(table.Remove({*ParseIp("fd00::1")}).ok());
  EXPECT_EQ(table.size(), 2u) << "free ones at the end go";
}

TEST(AddressTableTest, IsBounded) {
  AddressTable table(kMac, {}, {}, {});
  for (uint32_t i = 1; i < AddressTable::kMostEntries; ++i) {
    EXPECT_EQ(*table.Add(*ParseInterfaceAddress("10.0.0." + std::to_string(i) + "/24")), i);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(*ParseInterfaceAddress("10.1.0.1/24")).status()));
}

VlanSettings Vlan(uint16_t id, std::vector<InterfaceAddress> addresses) {
  VlanSettings vlan;
  vlan.id = id;
  vlan.addresses = std::move(addresses);
  return vlan;
}

InterfaceAddress In(uint16_t vlan, const char* text) {
  InterfaceAddress address = *ParseInterfaceAddress(text);
  address.vlan = vlan;
  return address;
}

TEST(AddressTableTest, VlansFollowWithLinkLocalAddressesOfTheirOwn) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("10.0.0.1/24")};
  const std::vector<VlanSettings> vlans = {
      Vlan(7, {*ParseInterfaceAddress("fd00::1/64"), *ParseInterfaceAddress("10.0.0.1/24")}),
      Vlan(9, {})};
  const AddressTable table(kMac, given, {}, {}, vlans);
  const roce::Gid link_local = LinkLocal(kMac);
  const roce::Gid ip = *ParseIp("10.0.0.1");
  const std::vector<roce::NetAddress> wanted = {{link_local, 0},          {ip, 0},
                                                {link_local, 7},          {ip, 7},
                                                {*ParseIp("fd00::1"), 7}, {link_local, 9}};
  ASSERT_EQ(table.size(), wanted.size());
  for (uint32_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(table.At(i)->net(), wanted[i]) << i;
  for (uint32_t i = 0; i < wanted.size(); ++i) EXPECT_FALSE(table.IsFree(i)) << i;
  EXPECT_EQ(table.IndexOf({ip, 7}), 3u);
  EXPECT_EQ(table.IndexInAnyVlan(ip), 1u);
  EXPECT_EQ(table.IndexInAnyVlan(*ParseIp("fd00::1")), 4u);
  EXPECT_FALSE(table.IsOwn({*ParseIp("fd00::1"), 0}));
  EXPECT_TRUE(table.HasSolicitedNode({SolicitedNodeGroup(*ParseIp("fd00::1")), 7}));
  EXPECT_FALSE(table.HasSolicitedNode({SolicitedNodeGroup(*ParseIp("fd00::1")), 9}));
  EXPECT_EQ(table.Vlans(), (std::vector<uint16_t>{0, 7, 9}));
}

TEST(AddressTableTest, RoutesStayInTheirVlan) {
  std::vector<VlanSettings> vlans = {Vlan(7, {*ParseInterfaceAddress("10.7.0.1/24")}),
                                     Vlan(8, {*ParseInterfaceAddress("10.8.0.1/24")})};
  vlans[0].gateway4 = ParseIp("10.7.0.254");
  const AddressTable table(kMac, {}, {}, {}, vlans);
  EXPECT_EQ(table.NextHop({*ParseIp("10.7.0.9"), 7}), ParseIp("10.7.0.9"));
  EXPECT_EQ(table.NextHop({*ParseIp("10.7.0.9"), 8}), std::nullopt);
  EXPECT_EQ(table.NextHop({*ParseIp("10.7.0.9"), 0}), std::nullopt);
  EXPECT_EQ(table.NextHop({*ParseIp("192.0.2.1"), 7}), ParseIp("10.7.0.254"));
  EXPECT_EQ(table.NextHop({*ParseIp("192.0.2.1"), 8}), std::nullopt);
  EXPECT_EQ(table.NextHop({*ParseIp("10.7.0.9"), 99}), std::nullopt);
}

TEST(AddressTableTest, PrioritiesFollowTheMapOfTheVlan) {
  std::vector<VlanSettings> vlans = {Vlan(7, {}), Vlan(8, {})};
  vlans[0].egress_qos_map = {1, 0, 3, 0, 5, 0, 6, 7};
  const AddressTable table(kMac, {}, {}, {}, vlans);
  // Types of service and their Linux priorities (tc-prio(8)): best effort, bulk, interactive, both.
  for (const auto& [tos, pcp] : {std::pair{0x00, 1}, {0x08, 3}, {0x10, 6}, {0x18, 5}, {0xB8, 5}}) {
    EXPECT_EQ(table.PriorityIn(7, static_cast<uint8_t>(tos)), pcp) << tos;
    EXPECT_EQ(table.PriorityIn(8, static_cast<uint8_t>(tos)), 0) << tos;
    EXPECT_EQ(table.PriorityIn(0, static_cast<uint8_t>(tos)), 0) << tos;
  }
}

TEST(AddressTableTest, VlansComeAndGoWithTheirAddresses) {
  const std::vector<VlanSettings> vlans = {Vlan(5, {})};
  AddressTable table(kMac, {}, {}, {}, vlans);
  EXPECT_EQ(*table.Add(In(7, "10.0.0.1/24")), 3u) << "behind the link-local ones";
  EXPECT_EQ(table.At(2)->net(), (roce::NetAddress{LinkLocal(kMac), 7}));
  EXPECT_EQ(*table.Add(In(7, "10.0.1.1/24")), 4u);
  EXPECT_EQ(*table.Add(In(5, "10.0.0.1/24")), 5u) << "the same address elsewhere";
  EXPECT_TRUE(absl::IsAlreadyExists(table.Add(In(7, "10.0.1.1/24")).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(table.Remove({LinkLocal(kMac), 7})));
  ASSERT_TRUE(table.Remove({*ParseIp("10.0.0.1"), 7}).ok());
  EXPECT_TRUE(table.HasVlan(7));
  ASSERT_TRUE(table.Remove({*ParseIp("10.0.1.1"), 7}).ok());
  EXPECT_FALSE(table.HasVlan(7)) << "nobody configured it";
  EXPECT_FALSE(table.IsOwn({LinkLocal(kMac), 7}));
  EXPECT_TRUE(table.IsFree(2) && table.IsFree(3) && table.IsFree(4));
  ASSERT_TRUE(table.Remove({*ParseIp("10.0.0.1"), 5}).ok());
  EXPECT_TRUE(table.HasVlan(5)) << "configured";
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(*table.Add({LinkLocal(kMac), 64, 6}), 2u) << "only the link-local one";
  EXPECT_EQ(table.size(), 3u);
  ASSERT_TRUE(table.Remove({LinkLocal(kMac), 6}).ok());
  EXPECT_FALSE(table.HasVlan(6));
}

TEST(AddressTableTest, AVlanNeedsTwoPlaces) {
  AddressTable table(kMac, {}, {}, {});
  for (uint32_t i = 1; i < AddressTable::kMostEntries - 1; ++i) {
    ASSERT_TRUE(table.Add(*ParseInterfaceAddress("10.0.0." + std::to_string(i) + "/24")).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(In(7, "10.1.0.1/24")).status()));
  EXPECT_FALSE(table.HasVlan(7));
  EXPECT_EQ(table.size(), AddressTable::kMostEntries - 1);
}

TEST(AddressTableTest, MulticastMacs) {
  EXPECT_EQ(MacText(MulticastMac(*ParseIp("239.129.2.3"))), "01:00:5e:01:02:03");
  EXPECT_EQ(MacText(MulticastMac(*ParseIp("ff02::1:ff01:0203"))), "33:33:ff:01:02:03");
}

}  // namespace
}  // namespace roci::control
