// The responder of a reliable connection: execution, answers, duplicates, faults.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;

void ExpectAck(const std::vector<WirePacket>& packets, Psn psn, Msn msn) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.dest_qpn, kPeerQpn);
  EXPECT_EQ(packets[0].tx.ext.aeth.syndrome, 0x1F);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, msn);
}

void ExpectNak(const std::vector<WirePacket>& packets, Psn psn, NakCode code) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[0].tx.ext.aeth.nak_code(), code);
}

std::byte ByteAt(Node& node, uint64_t offset) { return node.host.bytes[offset]; }

// ---- SEND ----

TEST(QpResponder, SendFillsAReceive) {
  Node node;
  node.host.PostRecv(1000, 128);
  WirePacket first = MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu, false);
  WirePacket middle = MakeRequest(Opcode::kRcSendMiddle, kRqPsn + 1, kMtu, false);
  WirePacket last = MakeRequest(Opcode::kRcSendLast, kRqPsn + 2, 3);
  EXPECT_EQ(node.Receive(first), DropReason::kNone);
  EXPECT_EQ(node.Receive(middle), DropReason::kNone);
  EXPECT_TRUE(node.PollAll().empty());  // nobody asked for an ACK yet
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
  EXPECT_EQ(node.host.recv_completions[0].immediate, 0x77u);
}

TEST(QpResponder, InvalidateOfAKeyThatCannotBeIsAnAccessError) {
  Node node;
  node.host.invalidate_fails = true;
  node.host.PostRecv(100);
  node.Receive(MakeRequest(Opcode::kRcSendOnlyInvalidate, kRqPsn, 4));
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_NE(node.host.recv_completions[0].status, CompletionStatus::kSuccess);
  ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteAccessError);
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
  // What lies before the wrap is a duplicate.
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
  // More of the same gap: silence.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 8));
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_EQ(node.host.count(QpCounter::kOutOfSequence), 3u);
  // The missing one comes; the next gap has its own NAK.
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

// ---- RNR ----

TEST(QpResponder, SendWithoutAReceiveIsNotReady) {
  Node node;
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)),
            DropReason::kNoReceiveBuffer);
  auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[0].tx.ext.aeth.syndrome, 0x20 | 12);
  // What follows is dropped in silence.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  EXPECT_TRUE(node.PollAll().empty());
  // Again, and still not ready: a new one.
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

TEST(QpResponder, WhatWasExecutedIsAcknowledgedBeforeNotReady) {
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
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));  // from the start again
  node.Receive(MakeRequest(Opcode::kRcSendMiddle, kRqPsn + 1, kMtu));
  node.Receive(MakeRequest(Opcode::kRcSendLast, kRqPsn + 2, 4));
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].wr_id, 2000u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 2 * kMtu + 4);
  EXPECT_EQ(node.host.receives.size(), 1u);
}

// ---- READ ----

TEST(QpResponder, ReadIsAnsweredInPathMtuPieces) {
  Node node;
  for (uint32_t i = 0; i < 1024; ++i) node.host.bytes[i] = PayloadByte(i, 9);
  node.Receive(MakeReadRequest(kRqPsn, 2 * kMtu + 4, 16));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcReadResponseMiddle);
  EXPECT_EQ(packets[2].tx.opcode, Opcode::kRcReadResponseLast);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packets[i].tx.psn, kRqPsn + i);
    EXPECT_EQ(packets[i].payload.size(), i == 2 ? 4u : kMtu);
    EXPECT_EQ(packets[i].payload[1], PayloadByte(16 + i * kMtu + 1, 9));
  }
  EXPECT_EQ(packets[0].tx.ext.aeth.syndrome, 0x1F);
  EXPECT_EQ(packets[2].tx.ext.aeth.msn, Msn(1));
  // The response is the acknowledgement.
  EXPECT_FALSE(node.qp.HasTransmit());
  // The next request follows all the PSNs that the READ took.
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 8));
  ExpectAck(node.PollAll(), kRqPsn + 3, Msn(2));
}

TEST(QpResponder, ReadOfNothingNeedsNoKey) {
  Node node;
  WirePacket request = MakeReadRequest(kRqPsn, 0);
  request.tx.ext.reth.rkey = Key(0xBAD);
  node.Receive(request);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_TRUE(packets[0].payload.empty());
}

TEST(QpResponder, AckWaitsForTheReadBeforeIt) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 2 * kMtu));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 2, 8, 8));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcReadResponseLast);
  EXPECT_EQ(packets[2].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(packets[2].tx.psn, kRqPsn + 2);
}

TEST(QpResponder, ReadResponseAcknowledgesWhatWasBeforeIt) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node.Receive(MakeReadRequest(kRqPsn + 1, 8));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
}

TEST(QpResponder, NakWaitsForTheReadBeforeItsGap) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, kMtu));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 2, 8, 8));  // + 1 is missing
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(packets[1].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[1].tx.psn, kRqPsn + 1);
}

TEST(QpResponder, NakOfAGapComesBeforeTheReadThatFilledIt) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  node.Receive(MakeReadRequest(kRqPsn, kMtu));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcReadResponseOnly);
}

TEST(QpResponder, DuplicateReadRunsAgain) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, kMtu, 0));
  node.PollAll();
  node.host.bytes[3] = std::byte{0x5A};
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn, kMtu, 0)), DropReason::kNone);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].payload[3], std::byte{0x5A});
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(1));
}

TEST(QpResponder, ReadIsRetriedFromItsMiddle) {
  Node node;
  for (uint32_t i = 0; i < 2048; ++i) node.host.bytes[i] = PayloadByte(i, 1);
  node.Receive(MakeReadRequest(kRqPsn, 3 * kMtu + 8, 0));
  node.PollAll();
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + 2, kMtu + 8, 2 * kMtu)), DropReason::kNone);
  auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn + 2);
  EXPECT_EQ(packets[0].payload[5], PayloadByte(2 * kMtu + 5, 1));
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcReadResponseLast);
  node.Receive(MakeReadRequest(kRqPsn + 3, 8, 3 * kMtu));
  packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
}

TEST(QpResponder, RetryDuringTheResponseStartsItFromThere) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 4 * kMtu, 0));
  node.Poll();
  node.Poll();
  node.Poll();
  node.Receive(MakeReadRequest(kRqPsn + 1, 3 * kMtu, kMtu));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn + 1);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseFirst);
}

TEST(QpResponder, DuplicateReadOfOtherMemoryIsIgnored) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 2 * kMtu, 0));
  node.PollAll();
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn, 2 * kMtu, 8)), DropReason::kStaleDuplicate);
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn, 3 * kMtu, 0)), DropReason::kStaleDuplicate);
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + 1, 2 * kMtu, 0)), DropReason::kStaleDuplicate);
  EXPECT_EQ(node.Receive(MakeFetchAdd(kRqPsn, 1)), DropReason::kStaleDuplicate);
  EXPECT_TRUE(node.PollAll().empty());
}

TEST(QpResponder, SeveralReadsAreAnsweredInOrderAndTheLateRetryFirst) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, kMtu));
  node.Receive(MakeReadRequest(kRqPsn + 1, kMtu));
  node.Receive(MakeReadRequest(kRqPsn + 2, kMtu));
  EXPECT_EQ(node.Poll()->tx.psn, kRqPsn);
  EXPECT_EQ(node.Poll()->tx.psn, kRqPsn + 1);
  node.Receive(MakeReadRequest(kRqPsn, kMtu));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[1].tx.psn, kRqPsn + 2);
}

TEST(QpResponder, MoreReadsThanAgreedAreAnInvalidRequest) {
  Node node;  // max_dest_rd_atomic 4
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + i, 8)), DropReason::kNone);
  }
  node.Receive(MakeReadRequest(kRqPsn + 4, 8));
  EXPECT_EQ(node.qp.state(), QpState::kErr);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 5u);  // the answers that are owed, then the NAK
  EXPECT_EQ(packets[4].tx.psn, kRqPsn + 4);
  EXPECT_EQ(packets[4].tx.ext.aeth.nak_code(), NakCode::kInvalidRequest);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kInvalidRequest});
}

TEST(QpResponder, AnsweredReadsMakeRoom) {
  Node node;
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + i, 8)), DropReason::kNone);
    EXPECT_EQ(node.PollAll().size(), 1u);
  }
  // The last four can be asked for again, the fifth not.
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + 16, 8)), DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + 15, 8)), DropReason::kStaleDuplicate);
}

TEST(QpResponder, NewRequestMayDisplaceAReplay) {
  Node node;
  for (uint32_t i = 0; i < 4; ++i) node.Receive(MakeReadRequest(kRqPsn + i, 8));
  node.PollAll();
  for (uint32_t i = 0; i < 4; ++i) node.Receive(MakeReadRequest(kRqPsn + i, 8));
  EXPECT_EQ(node.Receive(MakeReadRequest(kRqPsn + 4, 8)), DropReason::kNone);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn + 1);
  EXPECT_EQ(packets[3].tx.psn, kRqPsn + 4);
}

TEST(QpResponder, NoResourcesNoReads) {
  NodeOptions options;
  options.max_dest_rd_atomic = 0;
  Node node(options);
  node.Receive(MakeReadRequest(kRqPsn, 8));
  ExpectNak(node.PollAll(), kRqPsn, NakCode::kInvalidRequest);
}

TEST(QpResponder, KeyRevokedBetweenRequestAndResponse) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 2 * kMtu));
  EXPECT_EQ(node.Poll()->tx.psn, kRqPsn);
  node.host.grants.erase(ScriptedHost::kRkey.value());
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kRemoteAccessError);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kAccessViolation});
}

TEST(QpResponder, ResponseWhosePayloadCannotBeReadIsAnOperationError) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 3 * kMtu));
  const auto first = node.Poll();
  const auto second = node.Poll();
  node.qp.HandleTransmitFault(node.host, node.now, second->tx);
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kRemoteOperationalError);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

// ---- Atomics ----

TEST(QpResponder, CompareSwapAndFetchAdd) {
  Node node;
  const uint64_t va = ScriptedHost::kMemoryVa + 64;
  node.host.SetWord(va, 10);
  node.Receive(MakeCompareSwap(kRqPsn, 10, 20, 64));
  node.Receive(MakeCompareSwap(kRqPsn + 1, 10, 30, 64));
  node.Receive(MakeFetchAdd(kRqPsn + 2, ~0ull, 64));
  EXPECT_EQ(node.host.Word(va), 19u);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 3u);
  const uint64_t originals[] = {10, 20, 20};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packets[i].tx.opcode, Opcode::kRcAtomicAcknowledge);
    EXPECT_EQ(packets[i].tx.psn, kRqPsn + i);
    EXPECT_EQ(packets[i].tx.ext.atomic_ack.original, originals[i]);
    EXPECT_EQ(packets[i].tx.ext.aeth.msn, Msn(i + 1));
  }
}

TEST(QpResponder, DuplicateAtomicIsReplayedFromItsResult) {
  Node node;
  const uint64_t va = ScriptedHost::kMemoryVa + 64;
  node.Receive(MakeFetchAdd(kRqPsn, 5, 64));
  node.Receive(MakeFetchAdd(kRqPsn + 1, 5, 64));
  node.PollAll();
  EXPECT_EQ(node.Receive(MakeFetchAdd(kRqPsn, 5, 64)), DropReason::kNone);
  EXPECT_EQ(node.host.Word(va), 10u);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[0].tx.ext.atomic_ack.original, 0u);
}

TEST(QpResponder, MisalignedAtomicIsAnInvalidRequest) {
  for (uint64_t offset = 1; offset < 8; ++offset) {
    Node node;
    node.Receive(MakeFetchAdd(kRqPsn, 5, offset));
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kInvalidRequest);
    EXPECT_EQ(node.qp.state(), QpState::kErr);
  }
}

TEST(QpResponder, AtomicOnMemoryThatFaults) {
  Node node;
  node.host.atomic_faults = true;
  node.Receive(MakeFetchAdd(kRqPsn, 5, 8));
  ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteOperationalError);
}

// ---- Faults of the peer ----

struct FaultCase {
  const char* what;
  std::vector<WirePacket> packets;  // the last one is at fault
  NakCode code;
  std::vector<QpEvent> events;
};

TEST(QpResponder, FaultsOfThePeerEndTheQpWithTheRightNak) {
  const auto bad_key = [](WirePacket packet) {
    packet.tx.ext.reth.rkey = Key(0xBAD);
    packet.tx.ext.atomic.rkey = Key(0xBAD);
    return packet;
  };
  const auto request = [](Opcode opcode, uint32_t i, uint32_t bytes) {
    return MakeRequest(opcode, kRqPsn + i, bytes);
  };
  const std::vector<QpEvent> invalid{QpEvent::kInvalidRequest};
  const std::vector<QpEvent> access{QpEvent::kAccessViolation};
  const uint64_t end = 64 * 1024;
  const FaultCase cases[] = {
      {"middle outside a message",
       {request(Opcode::kRcSendMiddle, 0, kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"last outside a message",
       {request(Opcode::kRcWriteLast, 0, 8)},
       NakCode::kInvalidRequest,
       invalid},
      {"first inside a write",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 3 * kMtu),
        MakeWrite(Opcode::kRcWriteFirst, kRqPsn + 1, kMtu, 3 * kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"send middle inside a write",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 3 * kMtu),
        request(Opcode::kRcSendMiddle, 1, kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"read inside a write",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 3 * kMtu), MakeReadRequest(kRqPsn + 1, 8)},
       NakCode::kInvalidRequest,
       invalid},
      {"operation that is not supported",
       {request(Opcode::kRcFlush, 0, 0)},
       NakCode::kInvalidRequest,
       invalid},
      {"atomic write",
       {MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8)},
       NakCode::kInvalidRequest,
       invalid},
      {"write to a bad key",
       {bad_key(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8))},
       NakCode::kRemoteAccessError,
       access},
      {"long write to a bad key",
       {bad_key(MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 2 * kMtu))},
       NakCode::kRemoteAccessError,
       access},
      {"long write whose end is out of bounds",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 2 * kMtu, end - kMtu)},
       NakCode::kRemoteAccessError,
       access},
      {"read of a bad key",
       {bad_key(MakeReadRequest(kRqPsn, 8))},
       NakCode::kRemoteAccessError,
       access},
      {"read out of bounds",
       {MakeReadRequest(kRqPsn, 9, end - 8)},
       NakCode::kRemoteAccessError,
       access},
      {"atomic on a bad key",
       {bad_key(MakeFetchAdd(kRqPsn, 1))},
       NakCode::kRemoteAccessError,
       access},
      {"atomic out of bounds", {MakeFetchAdd(kRqPsn, 1, end)}, NakCode::kRemoteAccessError, access},
      {"write with more data than announced",
       {MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 7)},
       NakCode::kInvalidRequest,
       invalid},
      {"write with less data than announced",
       {MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 9)},
       NakCode::kInvalidRequest,
       invalid},
      {"write first that says it is all",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"write last too short",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 2 * kMtu),
        request(Opcode::kRcWriteLast, 1, 8)},
       NakCode::kInvalidRequest,
       invalid},
      {"write middle that reaches the end",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 2 * kMtu),
        request(Opcode::kRcWriteMiddle, 1, kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"write first short of the path MTU",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu - 4, 2 * kMtu)},
       NakCode::kInvalidRequest,
       invalid},
      {"write only above the path MTU",
       {MakeWrite(Opcode::kRcWriteOnly, kRqPsn, kMtu + 4, kMtu + 4)},
       NakCode::kInvalidRequest,
       invalid},
      {"write last without data",
       {MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, kMtu + 1),
        request(Opcode::kRcWriteLast, 1, 0)},
       NakCode::kInvalidRequest,
       invalid},
  };
  for (const FaultCase& c : cases) {
    SCOPED_TRACE(c.what);
    Node node;
    node.host.PostSend(WorkOpcode::kSend, 8);
    for (const WirePacket& packet : c.packets) node.Receive(packet);
    EXPECT_EQ(node.qp.state(), QpState::kErr);
    const auto packets = node.PollAll();
    ExpectNak(packets, c.packets.back().tx.psn, c.code);
    EXPECT_EQ(node.host.events, c.events);
    // The send queue is flushed too, and nothing is received any more.
    ASSERT_EQ(node.host.send_completions.size(), 1u);
    EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(node.Receive(c.packets.front()), DropReason::kQpState);
    EXPECT_TRUE(node.PollAll().empty());
  }
}

TEST(QpResponder, RightsOfTheRegionAreChecked) {
  using memory::Access;
  const struct {
    Access lacking;
    WirePacket packet;
  } cases[] = {
      {Access::kRemoteWrite, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8)},
      {Access::kRemoteRead, MakeReadRequest(kRqPsn, 8)},
      {Access::kRemoteAtomic, MakeFetchAdd(kRqPsn, 8)},
      {Access::kRemoteAtomic, MakeCompareSwap(kRqPsn, 8, 8)},
  };
  for (const auto& c : cases) {
    Node node;
    auto& access = node.host.grants[ScriptedHost::kRkey.value()].access;
    access = access & ~c.lacking;
    node.Receive(c.packet);
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteAccessError);
    EXPECT_EQ(node.host.events, std::vector{QpEvent::kAccessViolation});
  }
}

TEST(QpResponder, RightsOfTheQpAreChecked) {
  const struct {
    uint32_t lacking;
    WirePacket packet;
  } cases[] = {
      {kQpAccessRemoteWrite, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8)},
      {kQpAccessRemoteWrite, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 0, 0)},
      {kQpAccessRemoteRead, MakeReadRequest(kRqPsn, 8)},
      {kQpAccessRemoteAtomic, MakeFetchAdd(kRqPsn, 8)},
      {kQpAccessRemoteAtomic, MakeCompareSwap(kRqPsn, 8, 8)},
  };
  for (const auto& c : cases) {
    NodeOptions options;
    options.access_flags &= ~c.lacking;
    Node node(options);
    node.Receive(c.packet);
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kInvalidRequest);
  }
}

TEST(QpResponder, RevokedKeyStopsAWriteInItsMiddle) {
  Node node;
  node.Receive(MakeWrite(Opcode::kRcWriteFirst, kRqPsn, kMtu, 3 * kMtu));
  node.PollAll();
  node.host.grants.erase(ScriptedHost::kRkey.value());
  node.Receive(MakeRequest(Opcode::kRcWriteMiddle, kRqPsn + 1, kMtu));
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kRemoteAccessError);
}

// ---- Faults of the posted receive ----

struct ReceiveFaultCase {
  const char* what;
  void (*prepare)(ScriptedHost&);
  CompletionStatus status;
  NakCode code;
};

TEST(QpResponder, FaultsOfTheReceiveCompleteItWithAnError) {
  const ReceiveFaultCase cases[] = {
      {"too short", [](ScriptedHost& h) { h.PostRecv(7); }, CompletionStatus::kLocalLengthError,
       NakCode::kInvalidRequest},
      {"bad key", [](ScriptedHost& h) { h.PostRecv(8).first_sge.lkey = Key(0xBAD); },
       CompletionStatus::kLocalProtectionError, NakCode::kRemoteOperationalError},
      {"memory gone",
       [](ScriptedHost& h) {
         h.PostRecv(8);
         h.place_faults = true;
       },
       CompletionStatus::kLocalProtectionError, NakCode::kRemoteOperationalError},
      {"malformed",
       [](ScriptedHost& h) {
         h.PostRecv(8);
         h.bad_receive = CompletionStatus::kLocalQpOperationError;
       },
       CompletionStatus::kLocalQpOperationError, NakCode::kRemoteOperationalError},
  };
  for (const ReceiveFaultCase& c : cases) {
    SCOPED_TRACE(c.what);
    Node node;
    c.prepare(node.host);
    node.host.PostRecv(100);
    node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
    EXPECT_EQ(node.qp.state(), QpState::kErr);
    ExpectNak(node.PollAll(), kRqPsn, c.code);
    ASSERT_EQ(node.host.recv_completions.size(), 2u);
    EXPECT_EQ(node.host.recv_completions[0].status, c.status);
    EXPECT_EQ(node.host.recv_completions[0].wr_id, 2000u);
    EXPECT_EQ(node.host.recv_completions[1].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_TRUE(node.host.events.empty());
  }
}

TEST(QpResponder, ReceiveTooShortIsSeenWhereTheMessageOutgrowsIt) {
  Node node;
  node.host.PostRecv(kMtu + 1);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu)), DropReason::kNone);
  node.PollAll();
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendLast, kRqPsn + 1, 2)),
            DropReason::kReceiveTooLong);
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kInvalidRequest);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kLocalLengthError);
}

TEST(QpResponder, InvalidRequestInsideAMessageFailsItsReceive) {
  Node node;
  node.host.PostRecv(1000);
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));
  node.PollAll();
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8));
  ExpectNak(node.PollAll(), kRqPsn + 1, NakCode::kInvalidRequest);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kRemoteInvalidRequest);
}

TEST(QpResponder, WriteToMemoryThatIsGoneIsAnOperationError) {
  Node node;
  node.host.place_faults = true;
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteOperationalError);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kFatal});
}

}  // namespace
}  // namespace roci::roce
