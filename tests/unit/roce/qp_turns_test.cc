// Turns between the two sides of a queue pair: responses to the peer's READs and its own requests.
#include <gtest/gtest.h>

#include <cstdlib>

#include "roce/frame.h"
#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kReadBytes = 16 * 1024;

bool IsReadResponse(const WirePacket& packet) {
  return !packet.info().is_request && !packet.payload.empty();
}

// A node with READs of the peer in progress.
struct Answering {
  explicit Answering(NodeOptions options = {}) : node(options) {
    constexpr uint32_t kPackets = kReadBytes / kMtu;
    for (uint32_t i = 0; i < 2; ++i)
      EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + i * kPackets, kReadBytes)),
                DropReason::kNone);
    // Responses are in progress before the program posts.
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(IsReadResponse(node.Poll().value()));
  }
  Node node;
};

// Number of packets up to the first request; 0: none came.
uint32_t PacketsUntilRequest(Node& node) {
  for (uint32_t i = 1; const std::optional<WirePacket> packet = node.Poll(); ++i)
    if (packet->info().is_request) return i;
  return 0;
}

TEST(QpTurns, ARequestDoesNotWaitForTheResponsesToReads) {
  Answering a;
  a.node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  a.node.Work();
  EXPECT_EQ(PacketsUntilRequest(a.node), 1u);
}

TEST(QpTurns, ResponsesAndRequestsShareBytesEqually) {
  Answering a;
  a.node.host.PostSend(WorkOpcode::kRdmaWrite, 8 * 1024);
  a.node.Work();
  int64_t lead = 0;
  uint32_t requests = 0;
  while (requests < 8 * 1024 / kMtu) {
    const WirePacket packet = a.node.Poll().value();
    const auto bytes = static_cast<int64_t>(packet.payload.size());
    lead += packet.info().is_request ? -bytes : bytes;
    requests += packet.info().is_request ? 1 : 0;
    EXPECT_LE(std::abs(lead), 2 * kMtu);
  }
}

TEST(QpTurns, RequestsWithoutPayloadLeaveTurnsToResponses) {
  NodeOptions options;
  options.limits.window_packets = 64;
  Answering a(options);
  for (int i = 0; i < 60; ++i) a.node.host.PostSend(WorkOpcode::kRdmaWrite, 0);
  a.node.Work();
  uint32_t in_a_row = 0;
  for (int i = 0; i < 60; ++i) {
    const WirePacket packet = a.node.Poll().value();
    in_a_row = packet.info().is_request ? in_a_row + 1 : 0;
    EXPECT_LE(in_a_row, kMtu / 64 + 2);
  }
}

TEST(QpTurns, AnIdleRequesterSavesUpNoTurns) {
  Answering a;
  while (a.node.Poll().has_value()) {
  }
  EXPECT_EQ(a.node.Receive(MakeReadRequest(kRqPsn + 2 * (kReadBytes / kMtu), kReadBytes)),
            DropReason::kNone);
  a.node.host.PostSend(WorkOpcode::kRdmaWrite, 8 * 1024);
  a.node.Work();
  uint32_t responses = 0;
  for (int i = 0; i < 16; ++i) responses += IsReadResponse(a.node.Poll().value()) ? 1 : 0;
  EXPECT_NEAR(responses, 8, 1);
}

// Node::Poll checks that a packet has the payload of its own length.
TEST(QpTurns, ARequestThatFailsLeavesNothingInTheNextResponse) {
  Answering a;
  a.node.host.gather_fails_late = true;
  a.node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  a.node.Work();
  while (const std::optional<WirePacket> packet = a.node.Poll())
    EXPECT_FALSE(packet->info().is_request);
  ASSERT_EQ(a.node.host.send_completions.size(), 1u);
  EXPECT_EQ(a.node.host.send_completions[0].status, CompletionStatus::kLocalProtectionError);
}

TEST(QpTurns, AcknowledgementsComeBeforeRequests) {
  Node node;
  EXPECT_EQ(node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8)), DropReason::kNone);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  node.Work();
  EXPECT_EQ(node.Poll().value().tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(node.Poll().value().tx.opcode, Opcode::kRcWriteOnly);
}

// A throttled queue pair: each packet with data is charged, whichever side sends it.
TEST(QpTurns, AThrottledQueuePairTakesTurns) {
  CongestionPort port;
  port.parameters.line_rate_kbps = 1'000'000;
  port.parameters.min_rate_kbps = 1'000;
  port.parameters.burst_bytes = 1;
  Dcqcn dcqcn(&port);
  NodeOptions options;
  options.congestion = &dcqcn;
  Answering a(options);
  WirePacket cnp;
  cnp.tx.opcode = Opcode::kCnp;
  cnp.tx.becn = true;
  cnp.tx.dest_qpn = kLocalQpn;
  for (int i = 0; i < 64; ++i) {
    a.node.now += 5'000;
    EXPECT_EQ(a.node.Receive(cnp), DropReason::kNone);
  }
  a.node.host.PostSend(WorkOpcode::kRdmaWrite, 4 * kMtu);
  a.node.Work();
  uint32_t requests = 0, responses = 0;
  while (requests + responses < 8) {
    if (const std::optional<WirePacket> packet = a.node.Poll()) {
      ++(packet->info().is_request ? requests : responses);
    } else {
      ASSERT_TRUE(a.node.PassTimeout());
    }
  }
  EXPECT_EQ(requests, 4u);
}

}  // namespace
}  // namespace roci::roce
