// Packets that others have overtaken, at queue pairs that wait for them.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_reorder_testing.h"

namespace roci::roce {
namespace {

void ExpectWritten(Node& node, uint32_t packets) {
  for (uint32_t i = 0; i < packets * kMtu; ++i) {
    ASSERT_EQ(node.host.bytes[i], PayloadByte(i % kMtu)) << i;
  }
}

TEST(ReorderedRequests, WaitForTheirTurnAndAreAcknowledgedOnce) {
  Node node(Tolerant());
  EXPECT_EQ(node.Receive(WritePacket(0, 3)), DropReason::kNone);
  EXPECT_EQ(node.Receive(WritePacket(2, 3)), DropReason::kNone);
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  EXPECT_TRUE(node.qp.Upkeep().awaits_kept);
  EXPECT_FALSE(node.qp.IsDue(true, kRqPsn + 2));
  EXPECT_TRUE(node.PollAll().empty()) << "no NAK: the packet may only be late";
  EXPECT_EQ(node.Receive(WritePacket(1, 3)), DropReason::kNone);
  EXPECT_EQ(node.effects.early, EarlyAction::kOfferKept);
  EXPECT_TRUE(node.qp.IsDue(true, kRqPsn + 2));
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_EQ(node.Receive(WritePacket(2, 3)), DropReason::kNone);
  EXPECT_EQ(node.effects.early, EarlyAction::kNone);
  EXPECT_FALSE(node.qp.Upkeep().awaits_kept);
  ExpectWritten(node, 3);
  const auto answers = node.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 2);
  EXPECT_EQ(answers[0].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_EQ(node.host.count(QpCounter::kOutOfSequence), 1u);
  EXPECT_EQ(node.host.count(QpCounter::kKeptRequests), 1u);
}

TEST(ReorderedRequests, AreAskedForWhenTheyAreMissingTooLong) {
  Node node(Tolerant());
  const TimeNs begin = node.now;
  node.Receive(WritePacket(1, 3));
  EXPECT_EQ(node.qp.NextTimeout(), begin + kWaitNs);
  ASSERT_TRUE(node.PassTimeout());
  auto answers = node.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn);
  EXPECT_EQ(answers[0].tx.ext.aeth.nak_code(), NakCode::kPsnSequenceError);
  // One NAK per gap. The retransmission fills it; what the peer sends again is dropped.
  node.Receive(WritePacket(2, 3));
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  EXPECT_TRUE(node.PollAll().empty());
  node.Receive(WritePacket(0, 3));
  EXPECT_EQ(node.effects.early, EarlyAction::kOfferKept);
  node.Receive(WritePacket(1, 3));
  node.Receive(WritePacket(2, 3));
  ExpectWritten(node, 3);
  EXPECT_EQ(node.PollAll().size(), 1u);
}

TEST(ReorderedRequests, AreAcknowledgedUnaskedAfterARetransmission) {
  Node node(Tolerant());
  node.Receive(WritePacket(1, 4));
  ASSERT_TRUE(node.PassTimeout());
  ASSERT_EQ(node.PollAll().size(), 1u);
  node.Receive(WritePacket(0, 4));
  node.Receive(WritePacket(1, 4));
  const auto answers = node.PollAll();
  ASSERT_EQ(answers.size(), 1u) << "so that the peer does not send packet 1 again";
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 1);
}

TEST(ReorderedRequests, AreDroppedTwiceAndWithoutRoom) {
  Node node(Tolerant());
  node.Receive(WritePacket(2, 4));
  EXPECT_EQ(node.Receive(WritePacket(2, 4)), DropReason::kKeptDuplicate);
  EXPECT_TRUE(node.PollAll().empty());
  node.host.has_room_to_keep = false;
  EXPECT_EQ(node.Receive(WritePacket(3, 4)), DropReason::kOutOfSequence);
  EXPECT_EQ(node.PollAll().size(), 1u) << "it is lost, so the peer must go back";
}

TEST(ReorderedRequests, AreNotKeptForEver) {
  Node node(Tolerant());
  node.Receive(WritePacket(1, 3));
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_TRUE(node.qp.Upkeep().awaits_kept);
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_FALSE(node.qp.Upkeep().awaits_kept);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_EQ(node.PollAll().size(), 1u) << "still one NAK";
}

// The owner may have no room for a frame whose payload cannot be placed yet.
TEST(ReorderedRequests, AreForgottenWhenTheNextOneWasOfferedAndDropped) {
  Node node(Tolerant());
  node.Receive(WritePacket(1, 4));
  node.Receive(WritePacket(0, 4));
  ASSERT_EQ(node.effects.early, EarlyAction::kOfferKept);
  node.Receive(WritePacket(2, 4));
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  EXPECT_EQ(node.qp.NextTimeout(), node.now + kLongestKeptNs);
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_FALSE(node.qp.Upkeep().awaits_kept);
  node.Receive(WritePacket(3, 4));
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  ASSERT_TRUE(node.PassTimeout());
  const auto answers = node.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 1);
}

TEST(ReorderedRequests, LaterOnesDoNotProlongTheWait) {
  Node node(Tolerant());
  const TimeNs begin = node.now;
  node.Receive(WritePacket(1, 200));
  ASSERT_TRUE(node.PassTimeout());
  for (uint32_t i = 2; i < 100; ++i) {
    node.now += kLongestKeptNs / 200;
    node.Receive(WritePacket(i, 200));
    ASSERT_EQ(node.effects.early, EarlyAction::kKeep);
  }
  EXPECT_EQ(node.qp.NextTimeout(), begin + kWaitNs + kLongestKeptNs);
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_FALSE(node.qp.Upkeep().awaits_kept);
}

TEST(ReorderedRequests, AreForgottenInErrorAndBehindAnRnrNak) {
  Node node(Tolerant());
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8));
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_FALSE(node.qp.Upkeep().awaits_kept) << "no receive: the peer sends both again";
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8));
  EXPECT_EQ(node.effects.reason, DropReason::kOutOfSequence);

  Node other(Tolerant());
  other.Receive(WritePacket(1, 3));
  other.Modify(QpState::kErr);
  EXPECT_FALSE(other.qp.Upkeep().awaits_kept);
  EXPECT_EQ(other.qp.NextTimeout(), kNever);
}

TEST(ReorderedRequests, AnAtomicIsExecutedBehindAWriteThatItOvertook) {
  Node node(Tolerant());
  node.Receive(MakeFetchAdd(kRqPsn + 1, 5));
  EXPECT_EQ(node.effects.early, EarlyAction::kKeep);
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa), 0u);
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  EXPECT_EQ(node.effects.early, EarlyAction::kOfferKept);
  const uint64_t written = node.host.Word(ScriptedHost::kMemoryVa);
  node.Receive(MakeFetchAdd(kRqPsn + 1, 5));
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa), written + 5);
}

class ReorderedResponses : public testing::Test {
 protected:
  // A READ of three packets, then a WRITE.
  void SetUp() override {
    node_.host.PostSend(WorkOpcode::kRdmaRead, 3 * kMtu);
    node_.host.PostSend(WorkOpcode::kRdmaWrite, 8);
    ASSERT_EQ(node_.Run().size(), 2u);
  }
  static WirePacket Response(uint32_t i) {
    const Opcode opcode = i == 0   ? Opcode::kRcReadResponseFirst
                          : i == 2 ? Opcode::kRcReadResponseLast
                                   : Opcode::kRcReadResponseMiddle;
    return MakeReadResponse(opcode, kSqPsn + i, kMtu);
  }
  size_t completions() const { return node_.host.send_completions.size(); }

  Node node_{Tolerant()};
};

TEST_F(ReorderedResponses, WaitForTheirTurn) {
  node_.Receive(Response(0));
  node_.Receive(MakeAck(kSqPsn + 3));
  EXPECT_EQ(node_.effects.early, EarlyAction::kKeep) << "it covers responses that are missing";
  node_.Receive(Response(2));
  EXPECT_EQ(node_.effects.early, EarlyAction::kKeep);
  EXPECT_EQ(node_.Receive(Response(2)), DropReason::kKeptDuplicate);
  EXPECT_TRUE(node_.PollAll().empty()) << "nothing is sent again";
  node_.Receive(Response(1));
  EXPECT_EQ(node_.effects.early, EarlyAction::kOfferKept);
  EXPECT_TRUE(node_.qp.IsDue(false, kSqPsn + 2));
  EXPECT_FALSE(node_.qp.IsDue(false, kSqPsn + 4)) << "the ACK";
  node_.Receive(Response(2));
  EXPECT_EQ(node_.effects.early, EarlyAction::kOfferKept);
  EXPECT_EQ(completions(), 1u);
  EXPECT_TRUE(node_.qp.IsDue(false, kSqPsn + 4));
  node_.Receive(MakeAck(kSqPsn + 3));
  EXPECT_EQ(completions(), 2u);
  EXPECT_FALSE(node_.qp.Upkeep().awaits_kept);
  EXPECT_EQ(node_.qp.NextTimeout(), kNever);
  EXPECT_EQ(node_.host.count(QpCounter::kImpliedNaks), 0u);
}

TEST_F(ReorderedResponses, AreRequestedAgainWhenTheyAreMissingTooLong) {
  node_.Receive(Response(0));
  const TimeNs begin = node_.now;
  node_.Receive(Response(2));
  EXPECT_EQ(node_.qp.NextTimeout(), begin + kWaitNs);
  ASSERT_TRUE(node_.PassTimeout());
  const auto again = node_.PollAll();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].tx.opcode, Opcode::kRcReadRequest);
  EXPECT_EQ(again[0].tx.psn, kSqPsn + 1);
  EXPECT_EQ(node_.host.count(QpCounter::kImpliedNaks), 1u);
}

TEST_F(ReorderedResponses, ImplyANakAtOnceWithoutRoom) {
  node_.host.has_room_to_keep = false;
  node_.Receive(Response(1));
  EXPECT_EQ(node_.effects.reason, DropReason::kOutOfSequence);
  EXPECT_EQ(node_.PollAll().size(), 2u);
}

TEST_F(ReorderedResponses, OnlyTheNewestAckIsKept) {
  node_.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  ASSERT_EQ(node_.Run().size(), 1u);
  node_.Receive(MakeAck(kSqPsn + 4));
  EXPECT_EQ(node_.effects.early, EarlyAction::kKeep);
  EXPECT_EQ(node_.Receive(MakeAck(kSqPsn + 4)), DropReason::kKeptDuplicate);
  EXPECT_EQ(node_.Receive(MakeAck(kSqPsn + 3)), DropReason::kKeptDuplicate);
  EXPECT_EQ(node_.effects.early, EarlyAction::kNone);
}

TEST_F(ReorderedResponses, AFatalNakIsNotKept) {
  node_.Receive(MakeNak(kSqPsn + 3, NakCode::kRemoteAccessError));
  EXPECT_EQ(node_.qp.state(), QpState::kErr);
  EXPECT_FALSE(node_.qp.Upkeep().awaits_kept);
}

}  // namespace
}  // namespace roci::roce
