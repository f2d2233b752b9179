// A device on a DPDK port instead of a wire: a net_ring port, which loops back sent frames.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

constexpr auto kArp = dataplane::SlowPathKind::kNeighbours;

class EthdevTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static Node::Config Config() {
    static int serial = 0;
    Node::Config config;
    config.devargs = "net_ring" + std::to_string(serial++);
    config.lcore = GetParam();
    return config;
  }
};

// Lcore 0 is the port's home and hands every frame for lcore 1 over.
TEST_P(EthdevTest, TwoQueuePairsTalkThroughTheirPort) {
  Node node(TestDataplane(), nullptr, Config());
  EXPECT_TRUE(node.device().link_up());
  EXPECT_FALSE(node.device().on_wire());
  EXPECT_GE(node.device().mtu(), 1500u);
  AppCq cq(node.client(), 256);
  dataplane::QueuePairConfig config;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = 64;
  AppQp a(node.client(), config);
  AppQp b(node.client(), config);
  ConnectOptions options;
  options.mtu = roce::PathMtu::k1024;
  ASSERT_EQ(Connect(node, a, node, b.qp().qpn(), options), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(node, b, node, a.qp().qpn(), options), roce::ModifyResult::kOk);
  for (size_t i = 0; i < 300000; ++i) node.memory()[i] = static_cast<std::byte>(i * 7);
  SendRequest request;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.head.rkey = node.key();
  request.head.remote_va = node.va(400000);
  request.sges = {node.Sge(0, 300000)};
  a.Post(request);
  request.head.opcode = ROCI_ABI_WR_RDMA_READ;
  request.head.flags |= ROCI_ABI_SEND_FENCE;
  request.sges = {node.Sge(700000, 300000)};
  a.Post(request);
  a.Ring();
  roci_abi_cqe cqe;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(cq.Wait(&cqe));
    EXPECT_EQ(cqe.status, 0u);
  }
  EXPECT_EQ(std::memcmp(node.memory(), node.memory() + 400000, 300000), 0);
  EXPECT_EQ(std::memcmp(node.memory(), node.memory() + 700000, 300000), 0);
  const auto snapshot = node.device().Snapshot();
  EXPECT_GE(snapshot.rx_roce_packets, 2 * 293u);
  EXPECT_EQ(snapshot.rx_hand_off_dropped, 0u);
}

TEST_P(EthdevTest, FramesOfOthersAreDropped) {
  Node node(TestDataplane(), nullptr, Config());
  AppCq cq(node.client(), 256);
  dataplane::QueuePairConfig config;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  AppQp a(node.client(), config);
  AppQp b(node.client(), config);
  ConnectOptions options;
  options.timeout = 8;
  options.retry_count = 1;
  ASSERT_EQ(Connect(node, a, node, b.qp().qpn(), options), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(node, b, node, a.qp().qpn(), options), roce::ModifyResult::kOk);
  roce::Path path = PathTo(node, node);
  path.dst_mac.bytes[5] ^= 1;
  node.client().Do(dataplane::SetPath{a.qp(), path});
  SendRequest request;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.head.opcode = ROCI_ABI_WR_RDMA_WRITE;
  request.sges = {};
  a.Post(request);
  a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kRetryExceeded));
  // The home lcore may have slept all the time.
  const auto drops = [&] {
    return node.device().Snapshot().drops[static_cast<size_t>(roce::DropReason::kAddress)];
  };
  for (int i = 0; i < 2000 && drops() < 2; ++i) usleep(1000);
  EXPECT_GE(drops(), 2u);
}

TEST_P(EthdevTest, TheControlPlaneSendsAndReceives) {
  Node node(TestDataplane(), nullptr, Config());
  std::vector<std::byte> frame(100);
  std::memcpy(frame.data(), node.device().mac().bytes.data(), 6);
  frame[12] = std::byte{0x08};
  frame[13] = std::byte{0x06};
  ASSERT_TRUE(node.device().SendRaw(frame).ok());
  std::vector<std::byte> received;
  for (int i = 0; i < 2000 && !node.device().ReceiveSlowPath(kArp, received); ++i) usleep(1000);
  EXPECT_EQ(received, frame);
}

// ---- Frames in several segments

class ScatteredTest : public ::testing::Test {
 protected:
  // The start of an ARP frame: the control plane gets the frame whatever its contents.
  static std::vector<std::byte> FrameOf(size_t bytes) {
    std::vector<std::byte> frame(bytes);
    for (size_t i = 0; i < bytes; ++i) frame[i] = static_cast<std::byte>(i * 11);
    frame[0] = std::byte{0};
    frame[12] = std::byte{0x08};
    frame[13] = std::byte{0x06};
    return frame;
  }
  // As a port delivers it: net_ring returns the sent mbufs unchanged. This thread sends in place of
  // the lcore, because ThreadSanitizer does not see the ordering in DPDK's driver.
  void Deliver(const std::vector<std::byte>& frame, size_t segment) {
    TestLcore(0).Call([&](const dataplane::OnShard&) { SendOut(frame, segment); });
  }
  void SendOut(const std::vector<std::byte>& frame, size_t segment) {
    rte_mbuf* first = nullptr;
    for (size_t at = 0; at < frame.size(); at += segment) {
      const size_t bytes = std::min(segment, frame.size() - at);
      rte_mbuf* part = rte_pktmbuf_alloc(parts_->mempool());
      ASSERT_NE(part, nullptr);
      std::memcpy(rte_pktmbuf_append(part, static_cast<uint16_t>(bytes)), &frame[at], bytes);
      if (first == nullptr) {
        first = part;
      } else {
        ASSERT_EQ(rte_pktmbuf_chain(first, part), 0);
      }
    }
    ASSERT_EQ(rte_eth_tx_burst(port_, 0, &first, 1), 1);
  }
  std::vector<std::byte> Receive() {
    std::vector<std::byte> received;
    for (int i = 0; i < 2000 && !node_.device().ReceiveSlowPath(kArp, received); ++i) usleep(1000);
    return received;
  }
  // (The rings of an earlier port stay.)
  static std::string NewName() {
    static int serial = 70;
    return "net_ring" + std::to_string(serial++);
  }
  static Node::Config Config(const std::string& name) {
    Node::Config config;
    config.devargs = name;
    return config;
  }
  static uint16_t PortOf(const std::string& name) {
    uint16_t port = UINT16_MAX;
    rte_eth_dev_get_port_by_name(name.c_str(), &port);
    return port;
  }

  const std::string name_ = NewName();
  Node node_{TestDataplane(), nullptr, Config(name_)};
  std::unique_ptr<dataplane::FramePool> parts_ = *dataplane::FramePool::Create(1023, 1024);
  const uint16_t port_ = PortOf(name_);
};

TEST_F(ScatteredTest, SegmentedFramesAreLinearized) {
  const uint32_t in_use = TestDataplane().frames().in_use();
  for (const auto& [bytes, segment] :
       {std::pair{100, 60}, {100, 5}, {1514, 300}, {4218, 800}, {4352, 850}}) {
    SCOPED_TRACE(bytes);
    const std::vector<std::byte> frame = FrameOf(static_cast<size_t>(bytes));
    Deliver(frame, static_cast<size_t>(segment));
    EXPECT_EQ(Receive(), frame);
  }
  EXPECT_EQ(node_.device().frames_linearized(), 5u);
  EXPECT_EQ(node_.device().Snapshot().rx_scattered_dropped, 0u);
  EXPECT_EQ(parts_->in_use(), 0u);
  // (Each lcore caches some buffers.)
  EXPECT_LT(TestDataplane().frames().in_use(), in_use + 600);
}

TEST_F(ScatteredTest, FramesLongerThanABufferAreDroppedAndCounted) {
  Deliver(FrameOf(4353), 850);
  Deliver(FrameOf(9000), 850);
  const std::vector<std::byte> next = FrameOf(200);
  Deliver(next, 150);
  EXPECT_EQ(Receive(), next);
  EXPECT_EQ(node_.device().Snapshot().rx_scattered_dropped, 2u);
  EXPECT_EQ(node_.device().frames_linearized(), 1u);
  EXPECT_EQ(parts_->in_use(), 0u);
}

TEST_F(ScatteredTest, FramesWithoutABufferAreDropped) {
  rte_mempool* pool = TestDataplane().frames().mempool();
  std::vector<rte_mbuf*> taken;
  while (rte_mbuf* frame = rte_pktmbuf_alloc(pool)) taken.push_back(frame);
  const auto dropped = [&] { return node_.device().Snapshot().rx_scattered_dropped; };
  // The buffers that lcores cache are used first.
  for (int i = 0; i < 2000 && dropped() == 0; ++i) {
    Deliver(FrameOf(100), 60);
    while (parts_->in_use() != 0) usleep(10);
  }
  rte_pktmbuf_free_bulk(taken.data(), static_cast<unsigned>(taken.size()));
  EXPECT_GT(dropped(), 0u);
}

TEST(EthdevPort, InvalidDevargsAreRefused) {
  for (const char* devargs : {"net_nothing0", "net_pcap0,rx_pcap=/nonexistent/x.pcap", ""}) {
    dataplane::DeviceClientConfig config;
    config.devargs = devargs;
    EXPECT_FALSE(dataplane::DeviceClient::Create(TestDataplane(), config).ok()) << devargs;
  }
}

std::string HomeName(const ::testing::TestParamInfo<uint32_t>& lcore) {
  return lcore.param == 0 ? "OnHomeLcore" : "OnAnotherLcore";
}
INSTANTIATE_TEST_SUITE_P(Lcores, EthdevTest, ::testing::Values(0u, 1u), HomeName);

}  // namespace
}  // namespace roci::testing
