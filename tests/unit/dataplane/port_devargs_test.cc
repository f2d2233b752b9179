#include "dataplane/port_devargs.h"

#include <gtest/gtest.h>

namespace roci::dataplane {
namespace {

TEST(PortDevargs, RingsGetRoomForLargeFramesUnlessTheirSizeIsGiven) {
  EXPECT_EQ(WithRoomFor("net_af_packet0,iface=lo", 1500), "net_af_packet0,iface=lo");
  EXPECT_EQ(WithRoomFor("net_af_packet0,iface=lo", 4200),
            "net_af_packet0,iface=lo,blocksz=65536,framesz=8192,framecnt=512");
  EXPECT_EQ(WithRoomFor("net_af_packet0,iface=lo,framesz=4096", 4200),
            "net_af_packet0,iface=lo,framesz=4096");
  EXPECT_EQ(WithRoomFor("net_tap0,iface=x", 4200), "net_tap0,iface=x");
  // Where the driver gets what it is asked for, the frames have room.
  EXPECT_GE(MtuOf(WithRoomFor("net_af_packet0,iface=lo", 4200)), 4200);
}

TEST(PortDevargs, MtuIsThatOfTheBuffers) {
  EXPECT_EQ(MtuOf("net_memif0,role=server"), 2048 - 22);
  EXPECT_EQ(MtuOf("net_memif0,role=server,bsize=4608,x=y"), 4608 - 22);
  EXPECT_EQ(MtuOf("net_memif0,bsize=8"), 0);
  EXPECT_EQ(MtuOf("net_af_packet0,iface=lo"), 2048 - 22 - 128);
  EXPECT_EQ(MtuOf("net_af_packet0,iface=lo,framesz=16384"), 16384 - 22 - 128);
  EXPECT_EQ(MtuOf("net_af_packet0,iface=no-such-device"), 2048 - 22 - 128);
  EXPECT_EQ(MtuOf("0000:01:00.0"), std::nullopt);
}

TEST(PortDevargs, MtuIsAtMostThatOfTheNetworkDevice) {
  // The loopback device has 65536 bytes.
  EXPECT_EQ(MtuOf("net_af_packet0,iface=lo,framesz=262144"), 65536);
}

}  // namespace
}  // namespace roci::dataplane
