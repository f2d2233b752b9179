// A device on a DPDK port instead of the wire: a net_ring port, which gives back what is sent.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "dataplane/device_lane.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

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

// On lcore 1 every frame is handed over by the home lcore, which is 0.
TEST_P(EthdevTest, TwoQueuePairsTalkThroughTheirPort) {
  Node node(TestDataplane(), nullptr, Config());
  EXPECT_TRUE(node.device().link_up());
  EXPECT_FALSE(node.device().on_wire());
  EXPECT_GE(node.device().mtu(), 1500u);
  AppCq cq(node.session(), 256);
  dataplane::QueuePairConfig config;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = 64;
  AppQp a(node.session(), config);
  AppQp b(node.session(), config);
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
  AppCq cq(node.session(), 256);
  dataplane::QueuePairConfig config;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  AppQp a(node.session(), config);
  AppQp b(node.session(), config);
  ConnectOptions options;
  options.timeout = 8;
  options.retry_count = 1;
  ASSERT_EQ(Connect(node, a, node, b.qp().qpn(), options), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(node, b, node, a.qp().qpn(), options), roce::ModifyResult::kOk);
  roce::Path path = PathTo(node, node);
  path.dst_mac.bytes[5] ^= 1;
  node.session().SetPath(a.qp(), path);
  SendRequest request;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.head.opcode = ROCI_ABI_WR_RDMA_WRITE;
  request.sges = {};
  a.Post(request);
  a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kRetryExceeded));
  // The home lcore may have slept over it all.
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
  for (int i = 0; i < 2000 && !node.device().ReceiveSlowPath(received); ++i) usleep(1000);
  EXPECT_EQ(received, frame);
}

TEST(EthdevPort, NonsenseIsRefused) {
  for (const char* devargs : {"net_nothing0", "net_pcap0,rx_pcap=/nonexistent/x.pcap", ""}) {
    dataplane::DeviceConfig config;
    config.devargs = devargs;
    EXPECT_FALSE(dataplane::Device::Create(TestDataplane(), config).ok()) << devargs;
  }
}

std::string HomeName(const ::testing::TestParamInfo<uint32_t>& lcore) {
  return lcore.param == 0 ? "OnHomeLcore" : "OnAnotherLcore";
}
INSTANTIATE_TEST_SUITE_P(Lcores, EthdevTest, ::testing::Values(0u, 1u), HomeName);

}  // namespace
}  // namespace roci::testing
