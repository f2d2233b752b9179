#include "dataplane/port/port_queues.h"

#include <gtest/gtest.h>

namespace roci::dataplane {
namespace {

void ExpectQueues(PortQueues queues, int rx, int tx) {
  EXPECT_EQ(queues.rx, rx);
  EXPECT_EQ(queues.tx, tx);
}

TEST(PortQueues, NicsHaveOneQueueForEachLcore) {
  ExpectQueues(QueuesOf("0000:03:00.0", true, {8, 8}, 2), 2, 2);
  ExpectQueues(QueuesOf("0000:03:00.0", true, {2, 2}, 3), 2, 1);
  ExpectQueues(QueuesOf("0000:03:00.0", true, {1, 1}, 1), 1, 1);
}

TEST(PortQueues, AllQueuesThatMayReceiveFramesArePolled) {
  ExpectQueues(QueuesOf("net_af_packet0,iface=x,qpairs=4", false, {4, 4}, 2), 4, 4);
  ExpectQueues(QueuesOf("net_af_packet0,iface=x", false, {1, 1}, 2), 1, 1);
  ExpectQueues(QueuesOf("net_vhost0,iface=x,queues=2", false, {2, 2}, 4), 2, 1);
  ExpectQueues(QueuesOf("net_virtio_user0,path=x,queues=2", false, {2, 2}, 1), 2, 2);
  ExpectQueues(QueuesOf("net_pcap0,rx_iface=a,rx_iface=b", false, {2, 0}, 1), 2, 1);
}

TEST(PortQueues, TapsHaveTheRequestedNumber) {
  ExpectQueues(QueuesOf("net_tap0,iface=x", false, {16, 16}, 3), 3, 3);
}

// A further queue of these ports is a ring of its own, which the peer would have to serve.
TEST(PortQueues, OtherPortsHaveOneQueue) {
  ExpectQueues(QueuesOf("net_memif0,role=server", false, {255, 255}, 4), 1, 1);
  ExpectQueues(QueuesOf("net_ring0", false, {16, 16}, 4), 1, 1);
}

TEST(PortQueues, FewerArePowersOfTwo) {
  ExpectQueues(FewerThan({6, 6}, 6), 4, 6);
  ExpectQueues(FewerThan({4, 6}, 6), 2, 6);
  ExpectQueues(FewerThan({2, 2}, 2), 1, 1);
  ExpectQueues(FewerThan({1, 1}, 1), 0, 0);
}

}  // namespace
}  // namespace roci::dataplane
