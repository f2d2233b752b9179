// Raw packet queue pairs and flow rules in the dataplane, across lcores and kinds of memory.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

#include "dataplane/qp/flow_table.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

struct Layout {
  uint32_t sender, receiver;  // lcores
  bool process_vm;
};

class RawPacket : public ::testing::TestWithParam<Layout> {
 protected:
  RawPacket()
      : wire_(TestDataplane()),
        a_(TestDataplane(), &wire_, NodeConfig(1, GetParam().sender)),
        b_(TestDataplane(), &wire_, NodeConfig(2, GetParam().receiver)),
        a_cq_(a_.client(), 256),
        b_cq_(b_.client(), 256) {}

  static Node::Config NodeConfig(uint32_t number, uint32_t lcore) {
    Node::Config config;
    config.number = number;
    config.lcore = lcore;
    config.process_vm = GetParam().process_vm;
    return config;
  }
  static dataplane::QueuePairConfig Config(AppCq& cq) {
    dataplane::QueuePairConfig config;
    config.type = roce::QpType::kRawPacket;
    config.pd = Node::kPd;
    config.send_cq = cq.cq();
    config.recv_cq = cq.cq();
    config.max_send_wr = 64;
    config.max_recv_wr = 64;
    config.max_send_sge = 4;
    config.max_recv_sge = 4;
    config.limits.max_message_bytes = 4218;
    return config;
  }
  static void Ready(Node& node, AppQp& qp) {
    roce::QpAttributes attributes;
    attributes.port = 1;
    for (const roce::QpState state :
         {roce::QpState::kInit, roce::QpState::kRtr, roce::QpState::kRts}) {
      attributes.state = state;
      const uint32_t port = state == roce::QpState::kInit ? roce::kAttrPort : 0;
      ASSERT_EQ(node.client()
                    .Do(dataplane::ModifyQueuePair{qp.qp(), attributes, roce::kAttrState | port})
                    .result,
                roce::ModifyResult::kOk);
    }
  }
  // A frame of `bytes` to `dst` at the start of a_'s memory.
  void MakeFrame(const roce::Mac& dst, uint32_t bytes, uint8_t seed) {
    std::byte* frame = a_.memory();
    for (uint32_t i = 0; i < bytes; ++i) frame[i] = static_cast<std::byte>(i * 7 + seed);
    std::memcpy(frame, dst.bytes.data(), 6);
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xB5};
  }
  void Send(AppQp& qp, uint32_t bytes, uint32_t flags = 0) {
    SendRequest request;
    request.head.opcode = ROCI_ABI_WR_SEND;
    request.head.flags = static_cast<uint8_t>(ROCI_ABI_SEND_SIGNALED | flags);
    request.head.num_sge = 2;
    request.sges = {a_.Sge(0, 20), a_.Sge(20, bytes - 20)};
    qp.Post(request);
    qp.Ring();
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    ASSERT_EQ(cqe.status, 0);
  }
  static dataplane::FlowRule RuleFor(const roce::Mac& dst, AppQp& qp, uint32_t tag) {
    dataplane::FlowRule rule;
    rule.mask.dst_mac.bytes.fill(0xFF);
    rule.value.dst_mac = dst;
    rule.tag = tag;
    rule.qp = &qp.qp();
    return rule;
  }

  dataplane::Wire wire_;
  Node a_, b_;
  AppCq a_cq_, b_cq_;
};

TEST_P(RawPacket, FramesGoToTheLcoreOfTheMatchingRule) {
  AppQp from(a_.client(), Config(a_cq_));
  AppQp to(b_.client(), Config(b_cq_));
  Ready(a_, from);
  Ready(b_, to);
  for (uint64_t i = 0; i < 3; ++i) to.PostRecv(i, {b_.Sge(i * 8192, 5000)});
  to.Ring();
  dataplane::FlowRule rule = RuleFor(b_.device().mac(), to, 0xABCDE);
  dataplane::FlowCounters counters;
  const auto flow = b_.device().Do(dataplane::AddFlow{rule});
  ASSERT_TRUE(flow.ok());
  b_.device().Do(dataplane::CountFlow{*flow, counters});
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const auto length = static_cast<uint32_t>(std::array{60u, 1514u, 4218u}[i]);
    bytes += length;
    MakeFrame(b_.device().mac(), length, static_cast<uint8_t>(i));
    Send(from, length);
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe)) << i;
    EXPECT_EQ(cqe.byte_length, length);
    EXPECT_EQ(cqe.flow_tag, 0xABCDEu);
    EXPECT_EQ(std::memcmp(b_.memory() + cqe.wr_id * 8192, a_.memory(), length), 0);
  }
  uint64_t counted = 0;
  uint64_t counted_bytes = 0;
  for (const auto& lcore : counters.lcores) {
    counted += lcore.packets.value();
    counted_bytes += lcore.bytes.value();
  }
  EXPECT_EQ(counted, 3u);
  EXPECT_EQ(counted_bytes, bytes);
  b_.device().Do(dataplane::RemoveFlow{*flow});
  MakeFrame(b_.device().mac(), 60, 9);
  Send(from, 60);
  roci_abi_cqe cqe;
  EXPECT_FALSE(b_cq_.Wait(&cqe, 20));
}

// The packet has no checksums; raw_checksums_test.cc checks their values.
TEST_P(RawPacket, ChecksumsAreComputedOnRequestAndReported) {
  AppQp from(a_.client(), Config(a_cq_));
  AppQp to(b_.client(), Config(b_cq_));
  Ready(a_, from);
  Ready(b_, to);
  to.PostRecv(0, {b_.Sge(0, 5000)});
  to.PostRecv(1, {b_.Sge(8192, 5000)});
  to.Ring();
  dataplane::FlowRule rule = RuleFor(b_.device().mac(), to, 0);
  const auto flow = b_.device().Do(dataplane::AddFlow{rule});
  ASSERT_TRUE(flow.ok());
  constexpr uint32_t kLength = 14 + 20 + 8 + 300;
  MakeFrame(b_.device().mac(), kLength, 1);
  constexpr uint8_t kHeaders[] = {0x08, 0, 0x45, 0,  1, 72, 0, 0, 0, 0, 9, 17, 1,  1, 10,
                                  0,    0, 1,    10, 0, 0,  2, 0, 7, 0, 8, 1,  52, 1, 1};
  std::memcpy(a_.memory() + 12, kHeaders, sizeof(kHeaders));
  for (const uint32_t flag : {0u, uint32_t{ROCI_ABI_SEND_IP_CHECKSUM}}) {
    Send(from, kLength, flag);
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe));
    const std::byte* received = b_.memory() + cqe.wr_id * 8192;
    EXPECT_EQ((cqe.flags & ROCI_ABI_CQE_IP_CHECKSUM_OK) != 0, flag != 0);
    const bool is_as_it_was = std::memcmp(received, a_.memory(), kLength) == 0;
    EXPECT_EQ(is_as_it_was, flag == 0);
    EXPECT_EQ(std::memcmp(received + 42, a_.memory() + 42, kLength - 42), 0);
  }
  b_.device().Do(dataplane::RemoveFlow{*flow});
}

TEST_P(RawPacket, GroupFramesArriveOnceAlsoAtTheSendersDevice) {
  AppQp from(a_.client(), Config(a_cq_));
  AppQp near(a_.client(), Config(a_cq_));
  AppQp far(b_.client(), Config(b_cq_));
  Ready(a_, from);
  Ready(a_, near);
  Ready(b_, far);
  for (uint64_t i = 10; i < 12; ++i) {
    near.PostRecv(i, {a_.Sge(i * 8192, 5000)});
    far.PostRecv(i, {b_.Sge(i * 8192, 5000)});
  }
  near.Ring();
  far.Ring();
  const roce::Mac group{{0x01, 0x50, 0x56, 1, 2, 3}};
  dataplane::FlowRule near_rule = RuleFor(group, near, 1);
  dataplane::FlowRule far_rule = RuleFor(group, far, 2);
  const auto near_flow = a_.device().Do(dataplane::AddFlow{near_rule});
  ASSERT_TRUE(near_flow.ok());
  const auto far_flow = b_.device().Do(dataplane::AddFlow{far_rule});
  ASSERT_TRUE(far_flow.ok());
  MakeFrame(group, 100, 1);
  SendRequest request;
  request.head.opcode = ROCI_ABI_WR_SEND;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.head.num_sge = 1;
  request.sges = {a_.Sge(0, 100)};
  from.Post(request);
  from.Ring();
  roci_abi_cqe cqe;
  uint64_t seen = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    seen += cqe.wr_id;
  }
  EXPECT_EQ(seen, 10u) << "the request and one copy";
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_FALSE(b_cq_.Wait(&cqe, 20));
  EXPECT_FALSE(a_cq_.Wait(&cqe, 1));
  a_.device().Do(dataplane::RemoveFlow{*near_flow});
  b_.device().Do(dataplane::RemoveFlow{*far_flow});
}

TEST_P(RawPacket, ReceiveSideScalingSelectsTheQueueByTheHash) {
  AppQp from(a_.client(), Config(a_cq_));
  dataplane::QueuePairConfig config = Config(b_cq_);
  config.is_work_queue = true;
  config.max_send_wr = 0;
  AppQp first(b_.client(), config);
  AppQp second(b_.client(), config);
  Ready(a_, from);
  Ready(b_, first);
  Ready(b_, second);
  // Frames without IP hash to 0.
  dataplane::QueuePairConfig rss = Config(b_cq_);
  rss.send_cq = rss.recv_cq = nullptr;
  rss.max_send_wr = rss.max_recv_wr = 0;
  const dataplane::RssConfig group{.key = roce::ToeplitzKey{1, 2, 3},
                                   .fields = roce::kHashFields,
                                   .queues = {&first.qp(), &second.qp()}};
  rss.rss = &group;
  AppQp spread(b_.client(), rss);
  first.PostRecv(7, {b_.Sge(0, 5000)});
  first.Ring();
  second.PostRecv(8, {b_.Sge(8192, 5000)});
  second.Ring();
  dataplane::FlowRule rule = RuleFor(b_.device().mac(), spread, 0);
  const auto flow = b_.device().Do(dataplane::AddFlow{rule});
  ASSERT_TRUE(flow.ok());
  MakeFrame(b_.device().mac(), 200, 5);
  Send(from, 200);
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 7u);
  EXPECT_EQ(cqe.qpn, first.qp().qpn().value());
  b_.device().Do(dataplane::RemoveFlow{*flow});
}

INSTANTIATE_TEST_SUITE_P(Layouts, RawPacket,
                         ::testing::Values(Layout{0, 0, false}, Layout{0, 1, false},
                                           Layout{1, 0, false}, Layout{1, 1, true},
                                           Layout{0, 1, true}),
                         [](const auto& layout) {
                           return "From" + std::to_string(layout.param.sender) + "To" +
                                  std::to_string(layout.param.receiver) +
                                  (layout.param.process_vm ? "ProcessVm" : "Mapped");
                         });

}  // namespace
}  // namespace roci::testing
