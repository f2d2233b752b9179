// Routes: accepted and refused texts, and the route chosen for a destination.
#include "control/net/routes.h"

#include <gtest/gtest.h>

#include "control/net/addresses.h"

namespace roci::control {
namespace {

constexpr roce::Mac kMac{{0x02, 0x72, 0x6f, 0x63, 0x69, 0x00}};

std::string Reason(const std::string& text) {
  const absl::StatusOr<Route> route = ParseRoute(text);
  return route.ok() ? "" : std::string(route.status().message());
}

Route Parsed(const std::string& text, uint16_t vlan = 0) {
  Route route = ParseRoute(text).value();
  route.network.vlan = vlan;
  return route;
}

InterfaceAddress Address(const char* text, uint16_t vlan = 0) {
  InterfaceAddress address = *ParseInterfaceAddress(text);
  address.vlan = vlan;
  return address;
}

std::string Hop(const AddressTable& table, const char* destination, uint16_t vlan = 0) {
  const std::optional<roce::Gid> hop = table.NextHop({*ParseIp(destination), vlan});
  return hop ? IpText(*hop) : "none";
}

// 10.0.0.1/24, fd00::1/64, and in VLAN 7 10.0.0.1/24.
AddressTable Table(std::optional<roce::Gid> gateway4 = {}, std::vector<Route> routes = {}) {
  const std::vector<InterfaceAddress> given = {Address("10.0.0.1/24"), Address("fd00::1/64")};
  VlanSettings vlan;
  vlan.id = 7;
  vlan.addresses = {Address("10.0.0.1/24")};
  return {kMac, given, gateway4, {}, {&vlan, 1}, routes};
}

TEST(RoutesTest, AreWrittenAsOfIp) {
  for (const char* same : {"10.1.0.0/16 via 10.0.0.9", "0.0.0.0/0 via 10.0.0.9",
                           "fd00:1::/64 via fe80::9", "10.1.2.3/32 via 10.0.0.9"}) {
    EXPECT_EQ(Reason(same), "");
    EXPECT_EQ(RouteText(Parsed(same)), same);
  }
  EXPECT_EQ(RouteText(Parsed(" 10.1.2.3  via 10.0.0.9 ")), "10.1.2.3/32 via 10.0.0.9");
  EXPECT_EQ(RouteText(Parsed("default via 10.0.0.9")), "0.0.0.0/0 via 10.0.0.9");
  EXPECT_EQ(RouteText(Parsed("default via fe80::9")), "::/0 via fe80::9");
  EXPECT_EQ(RouteText(Parsed("default via fe80::9", 7)), "::/0 via fe80::9 in VLAN 7");
  EXPECT_EQ(Parsed("default via 10.0.0.9"), DefaultRoute(*ParseIp("10.0.0.9"), 0));
  EXPECT_EQ(Parsed("default via fe80::9"), DefaultRoute(*ParseIp("fe80::9"), 0));
}

TEST(RoutesTest, FaultsHaveReasons) {
  const char* shape = "not \"NETWORK via GATEWAY\", like \"10.1.0.0/16 via 10.99.0.9\"";
  for (const char* text : {"", "10.1.0.0/16", "10.1.0.0/16 10.0.0.9", "10.1.0.0/16 by 10.0.0.9",
                           "10.1.0.0/16 via", "10.1.0.0/16 via 10.0.0.9 dev x"}) {
    EXPECT_EQ(Reason(text), shape) << text;
  }
  const char* network =
      "not an IPv4 or IPv6 network with a prefix length, like 10.1.0.0/16, nor \"default\"";
  for (const char* text : {"10.1.0.0/33", "fd00::/129", "x", "10.1.0.0/", "10.1.0.0/-1"}) {
    EXPECT_EQ(Reason(std::string(text) + " via 10.0.0.9"), network) << text;
  }
  EXPECT_EQ(Reason("10.1.2.0/16 via 10.0.0.9"),
            "invalid prefix for its length; is 10.1.0.0/16 meant?");
  EXPECT_EQ(Reason("fd00:1::1/64 via fe80::9"),
            "invalid prefix for its length; is fd00:1::/64 meant?");
  EXPECT_EQ(Reason("10.1.0.0/16 via fe80::9"), "network and gateway are of different families");
  EXPECT_EQ(Reason("::/0 via 10.0.0.9"), "network and gateway are of different families");
  EXPECT_EQ(Reason("224.0.0.0/4 via 10.0.0.9"), "multicast groups need no route");
  EXPECT_EQ(Reason("ff00::/8 via fe80::9"), "multicast groups need no route");
  for (const char* gateway :
       {"x", "239.1.2.3", "127.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.9/24"}) {
    EXPECT_EQ(Reason(std::string("10.1.0.0/16 via ") + gateway),
              std::string("nexthop has invalid gateway: ") + gateway +
                  " is not an IPv4 or IPv6 unicast address");
  }
}

TEST(RoutesTest, TheLongestPrefixDecides) {
  const AddressTable table =
      Table(*ParseIp("10.0.0.254"),
            {Parsed("10.1.0.0/16 via 10.0.0.2"), Parsed("10.1.2.3/32 via 10.0.0.4"),
             Parsed("10.1.2.0/24 via 10.0.0.3"), Parsed("fd00:1::/64 via fe80::9")});
  EXPECT_EQ(Hop(table, "10.1.2.3"), "10.0.0.4");
  EXPECT_EQ(Hop(table, "10.1.2.4"), "10.0.0.3");
  EXPECT_EQ(Hop(table, "10.1.3.3"), "10.0.0.2");
  EXPECT_EQ(Hop(table, "10.2.0.1"), "10.0.0.254") << "the default";
  EXPECT_EQ(Hop(table, "10.0.0.77"), "10.0.0.77") << "a neighbour";
  EXPECT_EQ(Hop(table, "fd00:1::5"), "fe80::9");
  EXPECT_EQ(Hop(table, "fd00:2::5"), "none") << "no default of this family";
  std::vector<std::string> order;
  for (const Route& route : table.routes()) order.push_back(NetworkText(route.network));
  EXPECT_EQ(order, (std::vector<std::string>{"10.1.2.3/32", "10.1.2.0/24", "10.1.0.0/16",
                                             "0.0.0.0/0", "fd00:1::/64"}));
}

TEST(RoutesTest, OwnNetworksTakePart) {
  AddressTable table = Table();
  ASSERT_TRUE(table.AddRoute(Parsed("10.0.0.128/25 via 10.0.0.2")).ok());
  ASSERT_TRUE(table.AddRoute(Parsed("10.0.0.0/16 via 10.0.0.3")).ok());
  ASSERT_TRUE(table.AddRoute(Parsed("10.0.0.1/32 via 10.0.0.4")).ok());
  EXPECT_EQ(Hop(table, "10.0.0.200"), "10.0.0.2") << "longer than our network's";
  EXPECT_EQ(Hop(table, "10.0.0.20"), "10.0.0.20") << "shorter than our network's";
  EXPECT_EQ(Hop(table, "10.0.1.20"), "10.0.0.3");
  EXPECT_EQ(Hop(table, "10.0.0.1"), "10.0.0.1") << "ourselves";
  ASSERT_TRUE(table.AddRoute(Parsed("10.5.0.0/24 via 10.0.0.5")).ok());
  ASSERT_TRUE(table.Add(Address("10.5.0.1/24")).ok());
  EXPECT_EQ(Hop(table, "10.5.0.9"), "10.5.0.9") << "our network where both have one length";
}

TEST(RoutesTest, ComeAndGo) {
  AddressTable table = Table(*ParseIp("10.0.0.254"));
  const auto refusal = [&](const Route& route) {
    return std::string(table.AddRoute(route).message());
  };
  EXPECT_EQ(refusal(Parsed("10.1.0.0/16 via 10.0.0.2")), "");
  EXPECT_EQ(refusal(Parsed("10.1.0.0/16 via 10.0.0.3")), "the route exists, via 10.0.0.2");
  EXPECT_EQ(refusal(Parsed("default via 10.0.0.3")), "the route exists, via 10.0.0.254");
  EXPECT_EQ(refusal(Parsed("10.0.0.0/24 via 10.0.0.3")),
            "the route exists: the device has an address in this network");
  EXPECT_EQ(refusal(Parsed("fe80::/64 via fe80::3")),
            "the route exists: the device has an address in this network");
  EXPECT_EQ(refusal(Parsed("10.2.0.0/16 via 10.1.0.3")),
            "nexthop has invalid gateway: 10.1.0.3 is in none of the device's networks");
  EXPECT_EQ(refusal(Parsed("10.2.0.0/16 via 10.0.0.1")),
            "nexthop has invalid gateway: 10.0.0.1 is the device's own address");
  EXPECT_EQ(refusal(Parsed("10.2.0.0/16 via 10.0.0.255")),
            "nexthop has invalid gateway: 10.0.0.255 is a network or broadcast address, not a "
            "host's");
  EXPECT_TRUE(absl::IsAlreadyExists(table.AddRoute(Parsed("10.1.0.0/16 via 10.0.0.2"))));
  EXPECT_TRUE(absl::IsInvalidArgument(table.AddRoute(Parsed("10.2.0.0/16 via 10.1.0.3"))));
  const InterfaceAddress network = Parsed("10.1.0.0/16 via 10.0.0.2").network;
  EXPECT_TRUE(absl::IsNotFound(table.RemoveRoute(network, ParseIp("10.0.0.3"))));
  EXPECT_EQ(Hop(table, "10.1.0.9"), "10.0.0.2");
  EXPECT_TRUE(table.RemoveRoute(network, ParseIp("10.0.0.2")).ok());
  EXPECT_EQ(Hop(table, "10.1.0.9"), "10.0.0.254");
  EXPECT_TRUE(absl::IsNotFound(table.RemoveRoute(network, {})));
  EXPECT_TRUE(table.RemoveRoute(DefaultRoute(*ParseIp("10.0.0.3"), 0).network, {}).ok());
  EXPECT_EQ(Hop(table, "10.1.0.9"), "none") << "gateway4 is a route like others";
}

TEST(RoutesTest, StayInTheirVlanAndGoWithIt) {
  AddressTable table = Table();
  ASSERT_TRUE(table.AddRoute(Parsed("10.1.0.0/16 via 10.0.0.2")).ok());
  ASSERT_TRUE(table.AddRoute(Parsed("10.1.0.0/16 via 10.0.0.3", 7)).ok());
  EXPECT_EQ(Hop(table, "10.1.0.9"), "10.0.0.2");
  EXPECT_EQ(Hop(table, "10.1.0.9", 7), "10.0.0.3");
  EXPECT_EQ(Hop(table, "10.1.0.9", 8), "none");
  EXPECT_TRUE(absl::IsNotFound(table.AddRoute(Parsed("10.1.0.0/16 via 10.8.0.3", 8))));
  ASSERT_TRUE(table.Add(Address("10.8.0.1/24", 8)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(table.AddRoute(Parsed("10.2.0.0/16 via 10.8.0.3"))))
      << "a neighbour in another VLAN";
  ASSERT_TRUE(table.AddRoute(Parsed("10.1.0.0/16 via 10.8.0.3", 8)).ok());
  EXPECT_EQ(Hop(table, "10.1.0.9", 8), "10.8.0.3");
  ASSERT_TRUE(table.Remove({*ParseIp("10.8.0.1"), 8}).ok());
  EXPECT_EQ(table.routes().size(), 2u) << "the VLAN was made by its address";
}

TEST(RoutesTest, AreDeadWithoutTheirGatewaysNetwork) {
  AddressTable table = Table(*ParseIp("10.0.0.254"));
  ASSERT_TRUE(table.Add(Address("10.6.0.1/24")).ok());
  ASSERT_TRUE(table.AddRoute(Parsed("10.1.0.0/16 via 10.6.0.2")).ok());
  const Route route = table.routes()[0];
  EXPECT_TRUE(table.IsUsable(route));
  ASSERT_TRUE(table.Remove({*ParseIp("10.6.0.1")}).ok());
  EXPECT_FALSE(table.IsUsable(route));
  EXPECT_EQ(Hop(table, "10.1.0.9"), "10.0.0.254") << "the next shorter one";
  ASSERT_TRUE(table.Add(Address("10.6.0.2/24")).ok());
  EXPECT_FALSE(table.IsUsable(route)) << "by way of ourselves";
  ASSERT_TRUE(table.Add(Address("10.6.0.1/24")).ok());
  ASSERT_TRUE(table.Remove({*ParseIp("10.6.0.2")}).ok());
  EXPECT_EQ(Hop(table, "10.1.0.9"), "10.6.0.2");
}

TEST(RoutesTest, AreBounded) {
  AddressTable table = Table(*ParseIp("10.0.0.254"));
  for (uint32_t i = 1; i < AddressTable::kMostRoutes; ++i) {
    ASSERT_TRUE(table.AddRoute(Parsed("10.1." + std::to_string(i) + ".0/24 via 10.0.0.2")).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.AddRoute(Parsed("10.2.0.0/16 via 10.0.0.2", 7))));
  EXPECT_EQ(table.routes().size(), AddressTable::kMostRoutes);
}

}  // namespace
}  // namespace roci::control
