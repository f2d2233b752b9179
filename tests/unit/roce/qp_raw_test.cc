// Raw packet queue pairs: each request sends one frame, each frame consumes one receive. Also the
// rate limit of queue pairs of all types that send.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kLongest = 4218;

NodeOptions Raw() {
  NodeOptions options;
  options.type = QpType::kRawPacket;
  options.limits.max_message_bytes = kLongest;
  return options;
}

std::vector<std::byte> FrameOf(uint32_t bytes) {
  std::vector<std::byte> frame(bytes);
  for (uint32_t i = 0; i < bytes; ++i) frame[i] = PayloadByte(i);
  return frame;
}

TEST(QpRaw, OneFrameForARequest) {
  Node node(Raw());
  for (const uint32_t bytes : {14u, 60u, 1500u, kLongest}) {
    node.host.PostSend(WorkOpcode::kSend, bytes).fill_checksums = bytes == 60;
  }
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 4u);
  for (const WirePacket& packet : packets) {
    EXPECT_EQ(packet.polled.kind, Polled::Kind::kFrame);
    EXPECT_EQ(packet.polled.fill_checksums, packet.payload.size() == 60);
  }
  EXPECT_EQ(packets[0].payload.size(), 14u);
  EXPECT_EQ(packets[3].payload.size(), kLongest);
  ASSERT_EQ(node.host.send_completions.size(), 4u);
  EXPECT_EQ(node.host.send_completions[3].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
}

TEST(QpRaw, AnInvalidRequestMovesItToErr) {
  for (const uint32_t bytes : {13u, 0u, kLongest + 1}) {
    Node node(Raw());
    node.host.PostSend(WorkOpcode::kSend, bytes);
    EXPECT_TRUE(node.Run().empty());
    ASSERT_EQ(node.host.send_completions.size(), 1u);
    EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalLengthError) << bytes;
    EXPECT_EQ(node.qp.state(), QpState::kErr) << "it has no SQE";
  }
}

TEST(QpRaw, FramesCompleteReceives) {
  Node node(Raw());
  node.host.PostRecv(2000);
  const std::vector<std::byte> frame = FrameOf(1514);
  EXPECT_EQ(node.qp.HandleFrame(node.host, frame, {.flow_tag = 77, .checksums_right = true}),
            DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  const Completion& completion = node.host.recv_completions[0];
  EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  EXPECT_EQ(completion.byte_length, 1514u);
  EXPECT_EQ(completion.flow_tag, 77u);
  EXPECT_TRUE(completion.checksums_right);
  EXPECT_FALSE(completion.has_grh);
  EXPECT_EQ(node.qp.HandleFrame(node.host, frame, {.flow_tag = 77}), DropReason::kNoReceiveBuffer);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpRaw, AFrameThatDoesNotFitLeavesTheReceive) {
  Node node(Raw());
  node.host.PostRecv(100);
  EXPECT_EQ(node.qp.HandleFrame(node.host, FrameOf(101), {}), DropReason::kReceiveTooLong);
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(node.qp.HandleFrame(node.host, FrameOf(100), {}), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 100u);
}

TEST(QpRaw, NothingIsReceivedOutsideOfItsStates) {
  Node node(Raw(), QpState::kInit);
  node.host.PostRecv(100);
  EXPECT_EQ(node.qp.HandleFrame(node.host, FrameOf(60), {}), DropReason::kQpState);
  node.BringTo(QpState::kRtr);
  EXPECT_EQ(node.qp.HandleFrame(node.host, FrameOf(60), {}), DropReason::kNone);
  EXPECT_EQ(node.Modify(QpState::kErr), ModifyResult::kOk);
  EXPECT_EQ(node.qp.HandleFrame(node.host, FrameOf(60), {}), DropReason::kQpState);
}

// A raw queue pair receives packets of any transport only through flow rules, so that no peer can
// move it to ERR.
TEST(QpRaw, DropsPacketsOfAllTransports) {
  Node sender;
  sender.host.PostSend(WorkOpcode::kRdmaWrite, 16);
  const auto packets = sender.Run();
  ASSERT_EQ(packets.size(), 1u);
  Node node(Raw());
  EXPECT_EQ(node.Receive(packets[0]), DropReason::kWrongTransport);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

// ---- Rate limits

// The requester itself delays the next packet, so the packet before the pause must request an ACK.
TEST(QpRate, EveryPacketBeforeAPauseRequestsAnAck) {
  Node node;
  node.attributes.rate_limit_kbps = 8000;
  node.attributes.rate_burst_bytes = 1;
  ASSERT_EQ(node.Modify(QpState::kRts, kAttrRateLimit), ModifyResult::kOk);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 4 * 256);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_TRUE(packets[0].tx.ack_request);
}

TEST(QpRate, PacketsWaitForTheirTime) {
  Node node;
  node.attributes.rate_limit_kbps = 8000;  // a byte a microsecond
  node.attributes.rate_burst_bytes = 1;
  ASSERT_EQ(node.Modify(QpState::kRts, kAttrRateLimit), ModifyResult::kOk);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 4 * 256);
  EXPECT_EQ(node.Run().size(), 1u);
  EXPECT_FALSE(node.qp.HasTransmit());
  // Ethernet, IPv4, UDP, BTH, RETH, payload, ICRC.
  const TimeNs due = node.now + (14 + 20 + 8 + 12 + 16 + 256 + 4) * 1000;
  EXPECT_EQ(node.qp.NextTimeout(), due);
  node.now = due - 1;
  node.qp.HandleTimeout(node.host, node.now);
  EXPECT_FALSE(node.qp.HasTransmit());
  node.now = due;
  node.qp.HandleTimeout(node.host, node.now);
  EXPECT_EQ(node.PollAll().size(), 1u);
  QpAttributes out;
  node.qp.Query(out);
  EXPECT_EQ(out.rate_limit_kbps, 8000u);
}

TEST(QpRate, WithoutALimitEverythingGoes) {
  Node node;
  node.attributes.rate_limit_kbps = 8000;
  ASSERT_EQ(node.Modify(QpState::kRts, kAttrRateLimit), ModifyResult::kOk);
  node.attributes.rate_limit_kbps = 0;
  ASSERT_EQ(node.Modify(QpState::kRts, kAttrRateLimit), ModifyResult::kOk);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 4 * 256);
  EXPECT_EQ(node.Run().size(), 4u);
}

TEST(QpRate, ValuesOutsideOfTheDevices) {
  for (const uint32_t kbps : {kMinRateKbps - 1, kMaxRateKbps + 1, ~0u}) {
    QpAttributes attributes;
    attributes.rate_limit_kbps = kbps;
    EXPECT_EQ(CheckAttributeValues(attributes, kAttrRateLimit, {}), ModifyResult::kBadValue)
        << kbps;
  }
}

}  // namespace
}  // namespace roci::roce
