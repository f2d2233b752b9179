// Accepted and refused port arguments, compared with the drivers of DPDK 22.11.
#include "control/config/port_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::control {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PortArguments, AreInTheirOrder) {
  const std::vector<PortArgument> arguments = PortArguments("net_x0,a=1,b=x=y,c");
  ASSERT_EQ(arguments.size(), 3U);
  EXPECT_EQ(arguments[0].key, "a");
  EXPECT_EQ(arguments[1].value, "x=y");
  EXPECT_EQ(arguments[2].key, "c");
  EXPECT_EQ(arguments[2].value, "");
  EXPECT_EQ(ValueOf(arguments, "b"), "x=y");
  EXPECT_EQ(ValueOf(arguments, "d"), "");
  EXPECT_TRUE(PortArguments("net_x0").empty());
}

TEST(PortArguments, OfTheDriversGuideAreAccepted) {
  for (const char* port : {
           "net_af_packet0,iface=eth0,qpairs=2,blocksz=4096,framesz=2048,framecnt=512,qdisc_bypass="
           "1",
           "net_af_xdp3,iface=eth0,start_queue=0,queue_count=4,force_copy=1,busy_budget=0",
           "net_tap0,iface=tap0,mac=fixed",
           "net_tap,mac=2:00:00:00:00:0A,remote=eth0",
           "net_memif0,id=4294967295,role=client,bsize=65535,rsize=14,socket=/run/"
           "x,socket-abstract=no",
           "net_memif1,role=server,mac=02:00:00:00:00:01,zero-copy=yes,secret=abc",
           "net_vhost0,iface=/run/x,queues=2,client=1,iommu-support=1,linear-buffer=0",
           "net_virtio_user0,path=/dev/vhost-net,queue_size=1024,queues=2,packed_vq=1,speed=10000",
           "net_pcap0,rx_pcap=a.pcap,tx_pcap=b.pcap,infinite_rx=1",
           "net_pcap0,iface=lo,phy_mac=1",
           "net_ring0",
           "packet:eth0",
           "packet:eth0.100,gso=0",
       }) {
    EXPECT_EQ(FaultOfPortArguments(port), "") << port;
  }
}

TEST(PortArguments, OfUnknownDriversPass) {
  for (const char* port : {"0000:03:00.0,whatever=1", "net_memifx0,bsze=1", "net_null0,size=64",
                           "03:00.0", "eth_tap0,ifce=x"}) {
    EXPECT_EQ(FaultOfPortArguments(port), "") << port;
  }
}

TEST(PortArguments, TheNetworkDeviceIsThatOfPacketSockets) {
  EXPECT_EQ(NetworkDeviceOf("net_af_packet0,qpairs=2,iface=eth0"), "eth0");
  EXPECT_EQ(NetworkDeviceOf("net_af_xdp0,iface=eth0,queue_count=1"), "eth0");
  EXPECT_EQ(NetworkDeviceOf("packet:eth0"), "eth0");
  EXPECT_EQ(NetworkDeviceOf("packet:eth0.100,gso=0"), "eth0.100");
  EXPECT_EQ(NetworkDeviceOf("packet:"), "");
  EXPECT_EQ(NetworkDeviceOf("net_vhost0,iface=/run/x"), "");
  EXPECT_EQ(NetworkDeviceOf("03:00.0"), "");
}

TEST(PortArguments, AKeyThatTheDriverDoesNotHaveIsNamed) {
  EXPECT_THAT(FaultOfPortArguments("net_memif0,bsze=2048"),
              StartsWith("net_memif has no argument \"bsze\" (it has id, role, bsize, "));
  EXPECT_THAT(FaultOfPortArguments("net_tap0,iface=x,queues=2"), HasSubstr("\"queues\""));
  EXPECT_THAT(FaultOfPortArguments("net_af_packet0,iface=x,"), HasSubstr("\"\""));
  EXPECT_THAT(FaultOfPortArguments("net_af_xdp0,Iface=x"), HasSubstr("\"Iface\""));
  EXPECT_THAT(FaultOfPortArguments("net_ring0,a=b"), StartsWith("takes no arguments"));
}

TEST(PortArguments, AValueThatTheDriverDoesNotTakeIsNamed) {
  for (const char* argument :
       {"net_af_packet0,qpairs=0", "net_af_packet0,qpairs=abc", "net_af_packet0,qpairs=1x",
        "net_af_packet0,framesz=-1", "net_af_packet0,qdisc_bypass=yes", "net_memif0,role=boss",
        "net_memif0,bsize=65536", "net_memif0,rsize=15", "net_memif0,id=4294967296",
        "net_memif0,mac=02:00:00:00:00", "net_memif0,mac=02:00:00:00:00:0g",
        "net_memif0,zero-copy=1", "net_memif0,socket=", "net_memif0,role", "net_tap0,mac=random",
        "net_tap0,mac=", "net_vhost0,queues=0", "net_vhost0,client=2"}) {
    EXPECT_THAT(FaultOfPortArguments(argument), HasSubstr(" must be ")) << argument;
  }
  EXPECT_EQ(FaultOfPortArguments("net_memif0,role=boss"),
            "\"role\" must be one of server|client|master|slave, not \"boss\"");
  EXPECT_EQ(FaultOfPortArguments("net_memif0,rsize=15"),
            "\"rsize\" must be a number from 1 to 14, not \"15\"");
}

}  // namespace
}  // namespace roci::control
