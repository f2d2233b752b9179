#include "dataplane/port/port_devargs.h"

#include <gtest/gtest.h>

namespace roci::dataplane {
namespace {

TEST(PortDevargs, RingsGetRoomForLargeFramesUnlessTheirSizeIsGiven) {
  EXPECT_EQ(WithDefaults("net_af_packet0,iface=lo", 1500), "net_af_packet0,iface=lo");
  EXPECT_EQ(WithDefaults("net_af_packet0,iface=lo", 4200),
            "net_af_packet0,iface=lo,blocksz=65536,framesz=8192,framecnt=512");
  EXPECT_EQ(WithDefaults("net_af_packet0,iface=lo,framesz=4096", 4200),
            "net_af_packet0,iface=lo,framesz=4096");
  EXPECT_EQ(WithDefaults("net_tap0,iface=x", 4200), "net_tap0,iface=x");
  // The ring that WithDefaults() requests has room for the frames.
  EXPECT_GE(RoomOf(WithDefaults("net_af_packet0,iface=lo", 4200)), 4200);
}

TEST(PortDevargs, MtuIsThatOfTheBuffers) {
  EXPECT_EQ(RoomOf("net_memif0,role=server"), 2048 - 22);
  EXPECT_EQ(RoomOf("net_memif0,role=server,bsize=4608,x=y"), 4608 - 22);
  EXPECT_EQ(RoomOf("net_memif0,bsize=8"), 0);
  EXPECT_EQ(RoomOf("net_af_packet0,iface=lo"), 2048 - 22 - 128);
  EXPECT_EQ(RoomOf("net_af_packet0,iface=lo,framesz=16384"), 16384 - 22 - 128);
  EXPECT_EQ(RoomOf("0000:01:00.0"), std::nullopt);
}

TEST(PortDevargs, PacketSocketsNameTheirNetworkDevice) {
  EXPECT_EQ(PacketInterface("packet:eth0"), "eth0");
  EXPECT_EQ(PacketInterface("packet:eth0.5,gso=0"), "eth0.5");
  EXPECT_EQ(PacketInterface("net_af_packet0,iface=packet:eth0"), "");
  EXPECT_EQ(PacketInterface("packet:"), "");
  EXPECT_EQ(PortName("packet:eth0,gso=0"), "packet:eth0");
  EXPECT_FALSE(IsPciAddress("packet:eth0.5"));
  EXPECT_TRUE(JoinsFrames("packet:eth0"));
  EXPECT_TRUE(JoinsFrames("packet:eth0,gso=1"));
  EXPECT_FALSE(JoinsFrames("packet:eth0,gso=0"));
  EXPECT_EQ(AsEthdev("packet:eth0,gso=0"), "net_af_packet_eth0,iface=eth0");
  EXPECT_EQ(AsEthdev("net_tap0,iface=x"), "net_tap0,iface=x");
}

TEST(PortDevargs, PcapIsBoundByItsNetworkDeviceAlone) {
  EXPECT_EQ(WithDefaults("net_pcap0,iface=lo", 4200), "net_pcap0,iface=lo,phy_mac=1");
  EXPECT_EQ(WithDefaults("net_pcap0,iface=lo,phy_mac=0", 1500), "net_pcap0,iface=lo,phy_mac=0");
  EXPECT_EQ(WithDefaults("net_pcap0,rx_pcap=a,tx_pcap=b", 1500), "net_pcap0,rx_pcap=a,tx_pcap=b");
  EXPECT_EQ(PcapInterface("net_pcap0,iface=lo"), "lo");
  EXPECT_EQ(RoomOf("net_pcap0,iface=lo"), UINT32_MAX);
  EXPECT_EQ(PcapInterface("net_pcap0,rx_pcap=a,tx_iface=lo"), "lo");
  EXPECT_EQ(RoomOf("net_pcap0,rx_pcap=a,tx_iface=lo"), UINT32_MAX);
  EXPECT_EQ(RoomOf("net_pcap0,rx_pcap=a,tx_pcap=b"), std::nullopt);
}

TEST(PortDevargs, ReportsThePeerOfALink) {
  EXPECT_TRUE(LinkBringsBack("net_ring0"));
  EXPECT_FALSE(LinkBringsBack("net_tap0,iface=x"));
  EXPECT_TRUE(AddressIsOfOtherEnd("net_tap0,iface=x"));
  EXPECT_FALSE(AddressIsOfOtherEnd("net_tap0,iface=x,remote=eth0"));
  EXPECT_FALSE(AddressIsOfOtherEnd("net_af_packet0,iface=x"));
}

TEST(PortDevargs, SocketsHaveOneEndThatListens) {
  EXPECT_TRUE(ConnectsAtStart("net_memif0"));
  EXPECT_TRUE(ConnectsAtStart("net_memif0,role=client,socket=/x"));
  EXPECT_FALSE(ConnectsAtStart("net_memif0,role=server"));
  EXPECT_FALSE(ConnectsAtStart("net_vhost0,iface=/x,client=1"));
  EXPECT_EQ(ListeningSocketOf("net_memif0,role=server,socket=/x"), "") << "abstract";
  EXPECT_EQ(ListeningSocketOf("net_memif0,role=server,socket=/x,socket-abstract=no"), "/x");
  EXPECT_EQ(ListeningSocketOf("net_memif0,role=client,socket=/x,socket-abstract=no"), "");
  EXPECT_EQ(MemifListenerOf("net_memif0,role=server,socket=/x"), "/x");
  EXPECT_EQ(MemifListenerOf("net_memif0,role=server,socket=/x,socket-abstract=no"), "/x");
  EXPECT_EQ(MemifListenerOf("net_memif0,role=server"), "/run/memif.sock");
  EXPECT_EQ(MemifListenerOf("net_memif0,role=client,socket=/x"), "");
  EXPECT_EQ(MemifListenerOf("net_vhost0,iface=/x"), "");
  EXPECT_EQ(ListeningSocketOf("net_vhost0,iface=/x"), "/x");
  EXPECT_EQ(ListeningSocketOf("net_vhost0,iface=/x,client=1"), "");
  EXPECT_EQ(ListeningSocketOf("net_virtio_user0,path=/x"), "");
  EXPECT_EQ(ListeningSocketOf("net_virtio_user0,path=/x,server=1"), "/x");
  EXPECT_EQ(ListeningSocketOf("net_af_packet0,iface=x"), "");
}

TEST(PortDevargs, BuffersOfXdpFitAPage) {
  EXPECT_EQ(BufferBytesOf("net_af_packet0,iface=lo"), std::nullopt);
  // With the headers of the pool and of the mbuf, and no padding.
  const std::optional<uint16_t> bytes = BufferBytesOf("net_af_xdp0,iface=lo");
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ((*bytes + 64 + 128) % 128, 64);
  EXPECT_LT(*bytes + 64 + 128, 4096);
  EXPECT_EQ(RoomOf("net_af_xdp0,iface=lo"), *bytes - 128 - 256 - 22);
}

TEST(PortDevargs, PciAddressesAreShortOrLong) {
  for (const char* address : {"0000:03:00.0", "03:00.0", "0000:0b:00.1,rx_queues=1"}) {
    EXPECT_TRUE(IsPciAddress(address)) << address;
  }
  for (const char* other :
       {"net_af_packet0,iface=eth0.100", "eth0.1", "", "net_tap0,mac=02:00:00"}) {
    EXPECT_FALSE(IsPciAddress(other)) << other;
  }
  EXPECT_EQ(PortName("03:00.0"), "0000:03:00.0");
  EXPECT_EQ(PortName("0001:03:00.0,a=b"), "0001:03:00.0");
  EXPECT_EQ(PortName("net_tap0,iface=x"), "net_tap0");
}

}  // namespace
}  // namespace roci::dataplane
