#include "dataplane/port/port_rings.h"

#include <gtest/gtest.h>
#include <rte_ethdev.h>

#include "dataplane/port/port_devargs.h"

namespace roci::dataplane {
namespace {

rte_eth_dev_info Nic(uint32_t speeds, uint16_t most) {
  rte_eth_dev_info info{};
  info.speed_capa = speeds;
  info.rx_desc_lim.nb_max = most;
  return info;
}

TEST(PortRings, HoldAMillisecondOfTheLineRate) {
  constexpr uint32_t kMtuBytes = 4200;
  // 100 Gb/s are 12.5 MB in 1 ms, 2,940 frames.
  EXPECT_EQ(AutomaticRxRing(Nic(RTE_ETH_LINK_SPEED_100G | RTE_ETH_LINK_SPEED_10G, 8192), kMtuBytes),
            4096u);
  EXPECT_EQ(AutomaticRxRing(Nic(RTE_ETH_LINK_SPEED_10G, 8192), kMtuBytes), 512u);
  EXPECT_EQ(AutomaticRxRing(Nic(RTE_ETH_LINK_SPEED_100G, 8192), 1500), 8192u);
}

TEST(PortRings, AreNoLongerThanTheDriverAllows) {
  EXPECT_EQ(AutomaticRxRing(Nic(RTE_ETH_LINK_SPEED_200G, 2048), 1500), 2048u);
  EXPECT_EQ(AutomaticRxRing(Nic(RTE_ETH_LINK_SPEED_200G, UINT16_MAX), 1500), kMaxRxRing);
}

TEST(PortRings, OfAnUnknownSpeedHoldFiveHundredFrames) {
  EXPECT_EQ(AutomaticRxRing(Nic(0, 4096), 1500), 512u);
  EXPECT_EQ(AutomaticRxRing(Nic(0, 256), 1500), 256u);
}

TEST(PortRings, BecomeArgumentsOfVirtualPorts) {
  EXPECT_EQ(WithRxRing("net_memif0,role=server", 4096), "net_memif0,role=server,rsize=12");
  EXPECT_EQ(WithRxRing("net_memif0", 4097), "net_memif0,rsize=13");
  EXPECT_EQ(WithRxRing("net_virtio_user0,path=/x", 1000),
            "net_virtio_user0,path=/x,queue_size=1024");
  EXPECT_EQ(WithRxRing("net_memif0,rsize=10", 4096), "net_memif0,rsize=10");
  EXPECT_EQ(WithRxRing("net_memif0", 0), "net_memif0");
  EXPECT_EQ(WithRxRing("net_tap0", 4096), "net_tap0");
}

TEST(PortRings, OfPacketSocketsAreWholeBlocks) {
  EXPECT_EQ(WithRxRing("net_af_packet0,iface=lo", 1001), "net_af_packet0,iface=lo,framecnt=1008");
  EXPECT_EQ(WithRxRing("net_af_packet0,iface=lo,framesz=16384,blocksz=65536", 1001),
            "net_af_packet0,iface=lo,framesz=16384,blocksz=65536,framecnt=1004");
  EXPECT_EQ(WithDefaults(WithRxRing("net_af_packet0,iface=lo", 1024), 4200),
            "net_af_packet0,iface=lo,framecnt=1024,blocksz=65536,framesz=8192");
}

TEST(PortRings, AreKnownByTheDevargs) {
  EXPECT_EQ(RxRingOf("net_memif0"), 1024u);
  EXPECT_EQ(RxRingOf("net_memif0,rsize=12"), 4096u);
  EXPECT_EQ(RxRingOf("net_virtio_user0,queue_size=512"), 512u);
  EXPECT_EQ(RxRingOf("net_af_packet0,framecnt=64"), 64u);
  EXPECT_EQ(RxRingOf("net_tap0"), 0u);
}

TEST(PortRings, CannotBeSetWhereTheyHaveASizeOfTheirOwn) {
  EXPECT_EQ(FaultOfRxRing("0000:03:00.0"), "");
  EXPECT_EQ(FaultOfRxRing("net_memif0"), "");
  EXPECT_EQ(FaultOfRxRing("net_memif0,rsize=10"), "the port has rsize=, which sets the same");
  EXPECT_EQ(FaultOfRxRing("net_tap0,iface=x"), "the ring of net_tap has a size of its own");
}

}  // namespace
}  // namespace roci::dataplane
