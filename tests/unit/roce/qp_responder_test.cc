// The responder of a reliable connection: SEND and WRITE, acknowledgements, sequence, RNR NAKs.
#include "tests/unit/roce/qp_responder_testing.h"

namespace roci::roce {
namespace {

// ---- SEND ----

TEST(QpResponder, SendFillsAReceive) {
  Node node;
  node.host.PostRecv(1000, 128);
  WirePacket first = MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu, false);
  WirePacket middle = MakeRequest(Opcode::kRcSendMiddle, kRqPsn + 1, kMtu, false);
  WirePacket last = MakeRequest(Opcode::kRcSendLast, kRqPsn + 2, 3);
  EXPECT_EQ(node.Receive(first), DropReason::kNone);
  EXPECT_EQ(node.Receive(middle), DropReason::kNone);
  EXPECT_TRUE(node.PollAll().empty());  // no packet requested an ACK yet
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(node.Receive(last), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  const Completion& completion = node.host.recv_completions[0];
  EXPECT_EQ(completion.wr_id, 2000u);
  EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  EXPECT_EQ(completion.opcode, CompletionOpcode::kRecv);
  EXPECT_EQ(completion.byte_length, 2 * kMtu + 3);
  EXPECT_FALSE(completion.has_immediate);
  EXPECT_FALSE(completion.solicited);
  EXPECT_EQ(ByteAt(node, 128 + kMtu + 9), PayloadByte(9));
  EXPECT_EQ(ByteAt(node, 128 + 2 * kMtu + 2), PayloadByte(2));
  EXPECT_EQ(ByteAt(node, 128 + 2 * kMtu + 3), std::byte{0});
  ExpectAck(node.PollAll(), kRqPsn + 2, Msn(1));
}

TEST(QpResponder, SendOfNothing) {
  Node node;
  node.host.PostRecv(0);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn)), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 0u);
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
}

TEST(QpResponder, SendWithImmediateAndSolicited) {
  Node node;
  node.host.PostRecv(100);
  WirePacket packet = MakeRequest(Opcode::kRcSendOnlyImm, kRqPsn, 4);
  packet.tx.ext.imm.value = 0x01020304;
  packet.tx.solicited = true;
  node.Receive(packet);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_TRUE(node.host.recv_completions[0].has_immediate);
  EXPECT_TRUE(node.host.recv_completions[0].solicited);
  EXPECT_EQ(node.host.recv_completions[0].immediate, SwapNetworkOrder(0x01020304));
}

TEST(QpResponder, SendWithInvalidate) {
  Node node;
  node.host.PostRecv(100);
  WirePacket packet = MakeRequest(Opcode::kRcSendOnlyInvalidate, kRqPsn, 4);
  packet.tx.ext.ieth.rkey = Key(0x77);
  node.Receive(packet);
  EXPECT_EQ(node.host.invalidated, std::vector{Key(0x77)});
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_TRUE(node.host.recv_completions[0].has_invalidate);
  EXPECT_EQ(node.host.recv_completions[0].invalidated_key, 0x77u);
}

// IBTA vol 1, 9.9.6.3, class J.
TEST(QpResponder, InvalidateOfAKeyThatCannotBeFailsTheReceiveAndIsNotAnswered) {
  Node node;
  node.host.invalidate_fails = true;
  node.host.PostRecv(100);
  node.host.PostRecv(101);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 4));
  node.Receive(MakeRequest(Opcode::kRcSendOnlyInvalidate, kRqPsn + 1, 4));
  ASSERT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.host.recv_completions[1].status, CompletionStatus::kMwBindError);
  // The request before it is acknowledged.
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

// ---- WRITE ----

TEST(QpResponder, WriteGoesToMemoryWithoutACompletion) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 2 * kMtu + 1, 512));
  node.Receive(MakeRequest(Opcode::kRcWriteMiddle, kRqPsn + 1, kMtu));
  node.Receive(MakeRequest(Opcode::kRcWriteLast, kRqPsn + 2, 1));
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(ByteAt(node, 512 + 7), PayloadByte(7));
  EXPECT_EQ(ByteAt(node, 512 + kMtu + 7), PayloadByte(7));
  EXPECT_EQ(ByteAt(node, 512 + 2 * kMtu), PayloadByte(0));
  EXPECT_EQ(ByteAt(node, 512 + 2 * kMtu + 1), std::byte{0});
  ExpectAck(node.PollAll(), kRqPsn + 2, Msn(1));
}

TEST(QpResponder, WriteOfNothingNeedsNoKey) {
  Node node;
  WirePacket packet = MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 0, 0);
  packet.tx.ext.reth.rkey = Key(0xBAD);
  EXPECT_EQ(node.Receive(packet), DropReason::kNone);
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
}

TEST(QpResponder, WriteWithImmediateConsumesAReceive) {
  Node node;
  node.host.PostRecv(0);
  node.Receive(MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, kMtu + 4, 0));
  WirePacket last = MakeRequest(Opcode::kRcWriteLastImm, kRqPsn + 1, 4);
  last.tx.ext.imm.value = 5;
  last.tx.solicited = true;
  EXPECT_EQ(node.Receive(last), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].opcode, CompletionOpcode::kRecvRdmaWithImm);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, kMtu + 4);
  EXPECT_EQ(node.host.recv_completions[0].immediate, SwapNetworkOrder(5));
  EXPECT_TRUE(node.host.recv_completions[0].solicited);
  EXPECT_TRUE(node.host.receives.empty());
}

// ---- Acknowledgements ----

TEST(QpResponder, OneAckForABurst) {
  Node node;
  for (uint32_t i = 0; i < 5; ++i) {
    node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + i, 8, 8));
  }
  ExpectAck(node.PollAll(), kRqPsn + 4, Msn(5));
  EXPECT_FALSE(node.qp.HasTransmit());
}

TEST(QpResponder, NoAckUnlessAskedFor) {
  Node node;
  WirePacket packet = MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8);
  packet.tx.ack_request = false;
  node.Receive(packet);
  EXPECT_TRUE(node.PollAll().empty());
}

TEST(QpResponder, SequenceNumbersWrap) {
  NodeOptions options;
  options.rq_psn = Psn(0xFFFFFF);
  Node node(options);
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, Psn(0xFFFFFF), 8, 8));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, Psn(0), 8, 8));
  ExpectAck(node.PollAll(), Psn(0), Msn(2));
  // A PSN from before the wrap is a duplicate.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, Psn(0xFFFFFF), 8, 8));
  EXPECT_EQ(node.host.count(QpCounter::kDuplicateRequest), 1u);
}

// ---- Sequence ----

TEST(QpResponder, OneNakPerGap) {
  Node node;
  EXPECT_EQ(node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8, 64)),
            DropReason::kOutOfSequence);
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 2, 8, 8));
  ExpectNak(node.PollAll(), kRqPsn, NakCode::kPsnSequenceError);
  EXPECT_EQ(ByteAt(node, 64), std::byte{0});
  // More packets behind the same gap get no NAK.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 8));
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_EQ(node.host.count(QpCounter::kOutOfSequence), 3u);
  // The missing packet arrives. The next gap gets a NAK of its own.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 5, 8, 8));
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kPsnSequenceError);
}

TEST(QpResponder, NakThatWasNotSentYetSurvivesTheMissingPacket) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[1].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(packets[1].tx.psn, kRqPsn);
}

TEST(QpResponder, DuplicatesAreAcknowledgedAndNotExecuted) {
  Node node;
  node.host.PostRecv(100, 0);
  node.host.PostRecv(100, 100);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8, 512));
  node.PollAll();
  node.host.bytes[512] = std::byte{0xEE};
  WirePacket send = MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8, false);
  EXPECT_EQ(node.Receive(send), DropReason::kNone);
  ExpectAck(node.PollAll(), kRqPsn + 1, Msn(2));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8, 512));
  ExpectAck(node.PollAll(), kRqPsn + 1, Msn(2));
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.receives.size(), 1u);
  EXPECT_EQ(ByteAt(node, 512), std::byte{0xEE});
}

// Linux treats an ACK with the PSN of a READ as the completion of the READ, even if the response
// was lost.
TEST(QpResponder, AcknowledgementOfADuplicateLeavesOutTheReadsBehindIt) {
  Node node;
  node.host.PostRecv(100, 0);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  node.Receive(MakeReadRequest(kRqPsn + 1, 8));
  node.Receive(MakeReadRequest(kRqPsn + 2, 3 * kMtu));
  node.PollAll();
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  ExpectAck(node.PollAll(), kRqPsn, Msn(3));
  // A new request behind the READs acknowledges everything.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 5, 8, 8));
  ExpectAck(node.PollAll(), kRqPsn + 5, Msn(4));
}

// ---- RNR ----

TEST(QpResponder, SendWithoutAReceiveIsNotReady) {
  Node node;
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)),
            DropReason::kNoReceiveBuffer);
  auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[0].tx.ext.aeth.syndrome, 0x20 | 12);
  // Later packets are dropped without a NAK.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  EXPECT_TRUE(node.PollAll().empty());
  // The SEND is repeated, and still finds no receive: another RNR NAK.
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_EQ(node.PollAll().size(), 1u);
  node.host.PostRecv(8);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)), DropReason::kNone);
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpResponder, NotReadyIsVoidOnceTheRequestWasExecuted) {
  Node node;
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  node.host.PostRecv(8);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  ExpectAck(node.PollAll(), kRqPsn, Msn(1));
}

TEST(QpResponder, ExecutedRequestsAreAcknowledgedBeforeAnRnrNak) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[1].tx.ext.aeth.kind(), AethKind::kRnrNak);
}

TEST(QpResponder, SequenceNakMakesTheAckBeforeItSuperfluous) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 2, 8, 8));
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kPsnSequenceError);
}

TEST(QpResponder, WriteWithImmediateWithoutAReceiveIsNotReadyAtItsLastPacket) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, kMtu + 4, 0));
  node.PollAll();
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcWriteLastImm, kRqPsn + 1, 4)),
            DropReason::kNoReceiveBuffer);
  EXPECT_EQ(ByteAt(node, kMtu + 1), std::byte{0});
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn + 1);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kRnrNak);
  node.host.PostRecv(0);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcWriteLastImm, kRqPsn + 1, 4)), DropReason::kNone);
  EXPECT_EQ(ByteAt(node, kMtu + 1), PayloadByte(1));
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
}

TEST(QpResponder, ReceiveIsTakenOncePerMessageAndKeptOverLoss) {
  Node node;
  node.host.PostRecv(1000, 0);
  node.host.PostRecv(1000, 2000);
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));
  node.Receive(MakeRequest(Opcode::kRcSendLast, kRqPsn + 2, 4));  // the middle was lost
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));  // retransmitted from the start
  node.Receive(MakeRequest(Opcode::kRcSendMiddle, kRqPsn + 1, kMtu));
  node.Receive(MakeRequest(Opcode::kRcSendLast, kRqPsn + 2, 4));
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].wr_id, 2000u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 2 * kMtu + 4);
  EXPECT_EQ(node.host.receives.size(), 1u);
}

}  // namespace
}  // namespace roci::roce
