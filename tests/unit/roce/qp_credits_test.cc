// End-to-end credits of a reliable connection (IBTA vol 1, 9.7.7.2): given by the responder, obeyed
// by the requester.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;

// An ACK of everything before and including `psn`, after `messages` messages, with credits.
WirePacket CreditAck(Psn psn, uint32_t messages, uint8_t code) {
  WirePacket packet = MakeAck(psn);
  packet.tx.ext.aeth = Aeth::Ack(Msn(messages), code);
  return packet;
}

RequesterDebug RequesterOf(const Node& node) {
  QpDebug debug;
  node.qp.Describe(node.now, debug);
  return debug.requester;
}

// A requester whose first SEND was acknowledged with credits.
class QpCredits : public testing::Test {
 protected:
  static constexpr Psn kFirst{kSqPsn + 1};  // PSN of the next request

  void Start(uint8_t code) {
    node_.host.PostSend(WorkOpcode::kSend, 8);
    ASSERT_EQ(node_.Run().size(), 1u);
    ASSERT_EQ(node_.Receive(CreditAck(kSqPsn, 1, code)), DropReason::kNone);
  }
  void Post(WorkOpcode opcode, uint32_t length = 8) { node_.host.PostSend(opcode, length); }
  size_t Held() const { return node_.host.count(QpCounter::kCreditWaits); }

  Node node_;
};

TEST_F(QpCredits, NothingIsHeldBackBeforeThePeerGivesCredits) {
  for (int i = 0; i < 8; ++i) Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 8u);
  EXPECT_EQ(RequesterOf(node_).obeys_credits, false);
  node_.Receive(MakeAck(kSqPsn + 7));
  for (int i = 0; i < 8; ++i) Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 8u);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(QpCredits, AsManySendsStartAsThePeerHasReceives) {
  Start(2);
  for (int i = 0; i < 5; ++i) Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 2u);
  EXPECT_EQ(Held(), 1u);
  EXPECT_FALSE(node_.qp.HasTransmit());
  // One was received and one posted: the limit moves by one.
  node_.Receive(CreditAck(kFirst, 2, 2));
  EXPECT_EQ(node_.PollAll().size(), 1u);
  EXPECT_EQ(Held(), 2u);
  // The rounded code 5 stands for 6.
  node_.Receive(CreditAck(kFirst + 2, 4, 5));
  EXPECT_EQ(node_.PollAll().size(), 2u);
  EXPECT_EQ(RequesterOf(node_).credits, 4);
}

TEST_F(QpCredits, OnlyRequestsThatTakeAReceiveNeedCredits) {
  Start(0);
  Post(WorkOpcode::kRdmaWrite);
  Post(WorkOpcode::kRdmaRead);
  Post(WorkOpcode::kFetchAdd);
  EXPECT_EQ(node_.Run().size(), 3u);
  EXPECT_EQ(Held(), 0u);
  Post(WorkOpcode::kRdmaWriteWithImm);
  Post(WorkOpcode::kRdmaWrite);  // requests start in order
  EXPECT_TRUE(node_.Run().empty());
  EXPECT_EQ(Held(), 1u);
}

TEST_F(QpCredits, RequestsWithoutReceivesTakeNoneFromTheOthers) {
  Start(2);
  for (int i = 0; i < 6; ++i) Post(WorkOpcode::kRdmaWrite);
  Post(WorkOpcode::kSend);
  Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 8u);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(QpCredits, AnUnsolicitedAckEndsTheWait) {
  Start(0);
  for (int i = 0; i < 4; ++i) Post(WorkOpcode::kSend);
  EXPECT_TRUE(node_.Run().empty());
  EXPECT_TRUE(RequesterOf(node_).credit_waiting);
  EXPECT_NE(node_.qp.NextTimeout(), kNever);
  EXPECT_EQ(node_.Receive(CreditAck(kSqPsn, 1, 3)), DropReason::kNone);
  EXPECT_EQ(node_.PollAll().size(), 3u);
  EXPECT_EQ(node_.host.count(QpCounter::kAckTimeouts), 0u);
}

TEST_F(QpCredits, ALimitNeverMovesBack) {
  Start(4);
  Post(WorkOpcode::kSend);
  ASSERT_EQ(node_.Run().size(), 1u);
  node_.Receive(CreditAck(kFirst, 2, 0));  // takes three away
  for (int i = 0; i < 4; ++i) Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 3u);
  // An older ACK that was overtaken counts from an older MSN.
  EXPECT_EQ(node_.Receive(CreditAck(kSqPsn, 1, 30)), DropReason::kStaleAcknowledge);
  EXPECT_TRUE(node_.PollAll().empty());
}

TEST_F(QpCredits, NoInformationEndsObeying) {
  Start(0);
  for (int i = 0; i < 3; ++i) Post(WorkOpcode::kRdmaWrite);
  for (int i = 0; i < 3; ++i) Post(WorkOpcode::kSend);
  ASSERT_EQ(node_.Run().size(), 3u);
  node_.Receive(CreditAck(kFirst, 2, kNoCredits));
  EXPECT_EQ(node_.PollAll().size(), 3u);
  EXPECT_FALSE(RequesterOf(node_).obeys_credits);
  // Until it gives some again.
  node_.Receive(CreditAck(kFirst + 5, 7, 1));
  for (int i = 0; i < 3; ++i) Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 1u);
}

TEST_F(QpCredits, ResponsesOfReadsAndAtomicsCarryCredits) {
  Start(0);
  Post(WorkOpcode::kRdmaRead);
  Post(WorkOpcode::kSend);
  ASSERT_EQ(node_.Run().size(), 1u);
  WirePacket response = MakeReadResponse(Opcode::kRcReadResponseOnly, kFirst, 8);
  response.tx.ext.aeth = Aeth::Ack(Msn(2), 1);
  node_.Receive(response);
  EXPECT_EQ(node_.PollAll().size(), 1u);
  node_.Receive(CreditAck(kFirst + 1, 3, 0));
  Post(WorkOpcode::kFetchAdd);
  Post(WorkOpcode::kSend);
  ASSERT_EQ(node_.Run().size(), 1u);
  WirePacket atomic = MakeAtomicAck(kFirst + 2, 7);
  atomic.tx.ext.aeth = Aeth::Ack(Msn(4), 1);
  node_.Receive(atomic);
  EXPECT_EQ(node_.PollAll().size(), 1u);
}

// 9.7.7.2: without a credit, one packet may be sent, and asks for an ACK. It is sent when no news
// has come for a while.
TEST_F(QpCredits, AfterAWaitOnePacketIsSentWithoutACredit) {
  Start(0);
  Post(WorkOpcode::kSend, 3 * kMtu);
  ASSERT_TRUE(node_.Run().empty());
  const TimeNs before = node_.now;
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(node_.now - before, kLongestCreditWaitNs);  // timeout 14 is longer
  const auto probe = node_.PollAll();
  ASSERT_EQ(probe.size(), 1u);
  EXPECT_EQ(probe[0].tx.opcode, Opcode::kRcSendFirst);
  EXPECT_TRUE(probe[0].tx.ack_request);
  // The receive was there: the rest follows.
  node_.Receive(CreditAck(kFirst, 1, 1));
  EXPECT_EQ(node_.PollAll().size(), 2u);
  EXPECT_EQ(node_.host.count(QpCounter::kAckTimeouts), 0u);
  EXPECT_EQ(RequesterOf(node_).retries_left, node_.options.retry_count);
}

TEST_F(QpCredits, TheWaitIsNoLongerThanTheAckTimeout) {
  NodeOptions options;
  options.timeout = 8;
  Node node(options);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Receive(CreditAck(kSqPsn, 1, 0));
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  EXPECT_EQ(node.qp.NextTimeout(), node.now + TimeoutNs(8));
}

TEST_F(QpCredits, AProbeWithoutAReceiveIsRetriedAsAfterAnyRnrNak) {
  Start(0);
  Post(WorkOpcode::kSend, 2 * kMtu);
  node_.Run();
  ASSERT_TRUE(node_.PassTimeout());
  ASSERT_EQ(node_.PollAll().size(), 1u);
  for (int i = 0; i < node_.options.rnr_retry; ++i) {
    node_.Receive(MakeRnrNak(kFirst, 1));
    EXPECT_TRUE(node_.PollAll().empty());
    // Credits do not shorten that wait, which the responder asked for (9.7.5.2.8).
    const TimeNs before = node_.now;
    ASSERT_TRUE(node_.PassTimeout());
    EXPECT_EQ(node_.now - before, kRnrTimerNs[1]);
    EXPECT_EQ(node_.PollAll().size(), 1u);
  }
  node_.Receive(MakeRnrNak(kFirst, 1));
  ASSERT_EQ(node_.host.send_completions.size(), 2u);
  EXPECT_EQ(node_.host.send_completions[1].status, CompletionStatus::kRnrRetryExceeded);
}

// A peer that has receives and sends no unsolicited ACKs is not waited for a second time.
TEST_F(QpCredits, APeerThatReportsNoNewReceivesIsNotWaitedForAgain) {
  Start(0);
  for (uint32_t i = 0; i < 4; ++i) Post(WorkOpcode::kSend);
  node_.Run();
  ASSERT_TRUE(node_.PassTimeout());
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(node_.PollAll().size(), 1u);
    node_.Receive(CreditAck(kFirst + i, i + 2, 0));
  }
  EXPECT_EQ(node_.PollAll().size(), 1u);
  // Until it reports one.
  node_.Receive(CreditAck(kFirst + 3, 5, 0));
  node_.Receive(CreditAck(kFirst + 3, 5, 1));
  Post(WorkOpcode::kSend);
  Post(WorkOpcode::kSend);
  EXPECT_EQ(node_.Run().size(), 1u);
  node_.Receive(CreditAck(kFirst + 4, 6, 0));
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_TRUE(RequesterOf(node_).credit_waiting);
}

TEST_F(QpCredits, AReportThatCrossesTheProbeCounts) {
  Start(0);
  Post(WorkOpcode::kSend, 3 * kMtu);
  Post(WorkOpcode::kSend);
  node_.Run();
  ASSERT_TRUE(node_.PassTimeout());
  ASSERT_EQ(node_.PollAll().size(), 1u);
  EXPECT_EQ(node_.Receive(CreditAck(kSqPsn, 1, 1)), DropReason::kNone);
  EXPECT_EQ(node_.PollAll().size(), 2u);  // with a credit, all packets may go
  node_.Receive(CreditAck(kFirst + 2, 2, 0));
  EXPECT_TRUE(node_.PollAll().empty());  // the peer has reported a receive and is waited for
  EXPECT_TRUE(RequesterOf(node_).credit_waiting);
}

TEST_F(QpCredits, WaitingEndsWithTheConnection) {
  Start(0);
  Post(WorkOpcode::kSend);
  node_.Run();
  ASSERT_NE(node_.qp.NextTimeout(), kNever);
  ASSERT_EQ(node_.Modify(QpState::kErr), ModifyResult::kOk);
  EXPECT_EQ(node_.qp.NextTimeout(), kNever);
  EXPECT_EQ(node_.host.send_completions.back().status, CompletionStatus::kWorkRequestFlushed);
}

// ---- Responder

uint8_t CodeOf(const std::vector<WirePacket>& packets) {
  EXPECT_EQ(packets.size(), 1u);
  if (packets.size() != 1) return 0xFF;
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kAck);
  return packets[0].tx.ext.aeth.value();
}

TEST(QpResponderCredits, AcksTellHowManyReceivesArePosted) {
  Node node;
  for (int i = 0; i < 8; ++i) node.host.PostRecv(4 * kMtu);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), CreditCode(6));  // 7 rounded down
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), CreditCode(6));
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 2, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), CreditCode(6));
  node.Receive(MakeReadRequest(kRqPsn + 3, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), CreditCode(6));
  node.Receive(MakeFetchAdd(kRqPsn + 4, 1));
  EXPECT_EQ(CodeOf(node.PollAll()), CreditCode(6));
}

// The credits count from the MSN, and the message in progress is the next one.
TEST(QpResponderCredits, TheReceiveOfAnIncompleteMessageCounts) {
  Node node;
  node.host.PostRecv(4 * kMtu);
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu, true));
  auto packets = node.PollAll();
  EXPECT_EQ(CodeOf(packets), 1);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(0));
  node.Receive(MakeRequest(Opcode::kRcSendLast, kRqPsn + 1, 8));
  packets = node.PollAll();
  EXPECT_EQ(CodeOf(packets), 0);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(1));
}

TEST(QpResponderCredits, SharedReceiveQueuesGiveNone) {
  NodeOptions options;
  options.uses_srq = true;
  Node node(options);
  node.host.PostRecv(kMtu);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), kNoCredits);
  EXPECT_FALSE(node.qp.Upkeep().awaits_receives);
}

TEST(QpResponderCredits, ANewReceiveIsReportedToAPeerThatHasNoCredits) {
  Node node;
  node.host.PostRecv(kMtu);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), 0);
  EXPECT_TRUE(node.qp.Upkeep().awaits_receives);
  EXPECT_TRUE(node.Run().empty());  // still none
  for (int i = 0; i < 3; ++i) node.host.PostRecv(kMtu);
  const auto packets = node.Run();
  EXPECT_EQ(CodeOf(packets), 3);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(1));
  EXPECT_FALSE(node.qp.Upkeep().awaits_receives);
  node.host.PostRecv(kMtu);
  EXPECT_TRUE(node.Run().empty());  // it has credits: its next request brings the news
}

// Linux takes an ACK with the PSN of a READ as its completion, though the response may be lost.
TEST(QpResponderCredits, AReportDoesNotAcknowledgeReads) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), 0);
  node.host.PostRecv(kMtu);
  auto packets = node.Run();
  EXPECT_EQ(CodeOf(packets), 1);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn - 1);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(1));
}

TEST(QpResponderCredits, AReportComesAfterTheResponsesThatArePending) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  EXPECT_EQ(CodeOf(node.PollAll()), 0);
  node.Receive(MakeReadRequest(kRqPsn + 1, 3 * kMtu));
  ASSERT_TRUE(node.Poll().has_value());
  node.host.PostRecv(kMtu);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 2u);  // the last response has the credits
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcReadResponseLast);
  EXPECT_EQ(packets[1].tx.ext.aeth.value(), 1);
}

}  // namespace
}  // namespace roci::roce
