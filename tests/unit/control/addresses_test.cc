#include "control/addresses.h"

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
  EXPECT_EQ(*table.At(0), LinkLocal(kMac));
  EXPECT_EQ(IpText(*table.At(1)), "10.0.0.1");
  EXPECT_EQ(IpText(*table.At(2)), "10.0.1.1");
  EXPECT_EQ(IpText(*table.At(3)), "fd00::1");
  EXPECT_EQ(table.At(4), nullptr);
  EXPECT_TRUE(table.IsOwn(*ParseIp("10.0.1.1")));
  EXPECT_FALSE(table.IsOwn(*ParseIp("10.0.1.2")));
  EXPECT_TRUE(table.HasSolicitedNode(SolicitedNodeGroup(*ParseIp("fd00::1"))));
  EXPECT_FALSE(table.HasSolicitedNode(SolicitedNodeGroup(*ParseIp("fd00::2"))));
}

TEST(AddressTableTest, RoutesToNeighboursAndGateways) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("10.0.0.1/24")};
  const AddressTable table(kMac, given, *ParseIp("10.0.0.254"), {});
  EXPECT_EQ(table.NextHop(*ParseIp("10.0.0.9")), ParseIp("10.0.0.9"));
  EXPECT_EQ(table.NextHop(*ParseIp("10.0.1.9")), ParseIp("10.0.0.254"));
  EXPECT_EQ(table.NextHop(*ParseIp("fe80::1")), ParseIp("fe80::1"));
  EXPECT_EQ(table.NextHop(*ParseIp("2001:db8::1")), std::nullopt);
}

TEST(AddressTableTest, EntriesKeepTheirIndices) {
  const std::vector<InterfaceAddress> given = {*ParseInterfaceAddress("10.0.0.1/24"),
                                               *ParseInterfaceAddress("10.0.1.1/24")};
  AddressTable table(kMac, given, *ParseIp("10.0.1.254"), {});
  EXPECT_EQ(*table.Add(*ParseInterfaceAddress("fd00::1/64")), 3u);
  EXPECT_TRUE(absl::IsAlreadyExists(table.Add(*ParseInterfaceAddress("10.0.0.1/8")).status()));
  EXPECT_TRUE(table.NextHop(*ParseIp("10.9.9.9")).has_value());
  ASSERT_TRUE(table.Remove(*ParseIp("10.0.1.1")).ok());
  EXPECT_EQ(table.NextHop(*ParseIp("10.9.9.9")), std::nullopt) << "the gateway is out of reach";
  ASSERT_EQ(table.size(), 4u);
  EXPECT_TRUE(table.IsFree(2));
  EXPECT_EQ(*table.At(2), *table.At(0)) << "dense";
  EXPECT_EQ(table.IndexOf(*ParseIp("fd00::1")), 3u);
  EXPECT_FALSE(table.IsOwn(*ParseIp("10.0.1.1")));
  EXPECT_TRUE(absl::IsNotFound(table.Remove(*ParseIp("10.0.1.1"))));
  EXPECT_TRUE(absl::IsFailedPrecondition(table.Remove(LinkLocal(kMac))));
  EXPECT_EQ(*table.Add(*ParseInterfaceAddress("10.0.2.1/24")), 2u) << "the lowest that is free";
  ASSERT_TRUE(table.Remove(*ParseIp("10.0.2.1")).ok());
  ASSERT_TRUE(table.Remove(*ParseIp("fd00::1")).ok());
  EXPECT_EQ(table.size(), 2u) << "free ones at the end go";
}

TEST(AddressTableTest, IsBounded) {
  AddressTable table(kMac, {}, {}, {});
  for (uint32_t i = 1; i < AddressTable::kMostEntries; ++i) {
    EXPECT_EQ(*table.Add(*ParseInterfaceAddress("10.0.0." + std::to_string(i) + "/24")), i);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(*ParseInterfaceAddress("10.1.0.1/24")).status()));
}

TEST(AddressTableTest, MulticastMacs) {
  EXPECT_EQ(MacText(MulticastMac(*ParseIp("239.129.2.3"))), "01:00:5e:01:02:03");
  EXPECT_EQ(MacText(MulticastMac(*ParseIp("ff02::1:ff01:0203"))), "33:33:ff:01:02:03");
}

}  // namespace
}  // namespace roci::control
