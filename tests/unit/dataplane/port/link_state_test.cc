#include "dataplane/port/link_state.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include <string>

namespace roci::dataplane {
namespace {

constexpr LinkState kPort{.up = true, .mtu = 4200};

TEST(LinkState, FollowsTheNetworkDevice) {
  const LinkState link = OnNetworkDevice(
      kPort, NetworkDevice{.enabled = true, .running = true, .mtu = 1500, .speed_mbps = 25'000});
  EXPECT_TRUE(link.up);
  EXPECT_TRUE(link.enabled);
  EXPECT_EQ(link.mtu, 1500u);
  EXPECT_EQ(link.speed_mbps, 25'000u);
}

TEST(LinkState, TheMtuIsLimitedByThePort) {
  const NetworkDevice below{.enabled = true, .running = true, .mtu = 65536};
  EXPECT_EQ(OnNetworkDevice(kPort, below).mtu, 4200u);
  LinkState down = kPort;
  down.up = false;
  EXPECT_FALSE(OnNetworkDevice(down, below).up);
}

TEST(LinkState, IsDownWithoutACarrierAndDisabledByTheAdministrator) {
  const LinkState pulled = OnNetworkDevice(kPort, NetworkDevice{.enabled = true, .mtu = 1500});
  EXPECT_FALSE(pulled.up);
  EXPECT_TRUE(pulled.enabled);
  const LinkState disabled = OnNetworkDevice(kPort, NetworkDevice{.mtu = 1500});
  EXPECT_FALSE(disabled.up);
  EXPECT_FALSE(disabled.enabled);
}

TEST(LinkState, IsDownIfTheNetworkDeviceWasDeleted) {
  const LinkState link = OnNetworkDevice(kPort, std::nullopt);
  EXPECT_FALSE(link.up);
  EXPECT_EQ(link.mtu, 4200u);
  EXPECT_EQ(link.speed_mbps, 0u);
}

TEST(NetworkDevice, IsReadByItsNumber) {
  const unsigned index = if_nametoindex("lo");
  if (index == 0) GTEST_SKIP() << "there is no loopback device here";
  const std::optional<NetworkDevice> loopback = ReadNetworkDevice(index);
  ASSERT_TRUE(loopback.has_value());
  EXPECT_GT(loopback->mtu, 0u);
  EXPECT_LE(loopback->running, loopback->enabled);
  EXPECT_EQ(loopback->speed_mbps, 0u);
  EXPECT_FALSE(ReadNetworkDevice(0x7ffffff0).has_value());
}

}  // namespace
}  // namespace roci::dataplane
