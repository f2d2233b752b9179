// The responder of a reliable connection: READ and atomics, their responses and replays.
#include "tests/unit/roce/qp_responder_testing.h"

namespace roci::roce {
namespace {

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
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(packets[2].tx.ext.aeth.msn, Msn(1));
  // The response acknowledges the READ: no ACK follows.
  EXPECT_FALSE(node.qp.HasTransmit());
  // The next request comes after all PSNs of the READ.
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

TEST(QpResponder, ReadResponseAcknowledgesEarlierRequests) {
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
  ASSERT_EQ(packets.size(), 5u);  // the pending responses, then the NAK
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
  // The last four READs can be replayed, the fifth cannot.
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

TEST(QpResponder, AtomicThatWaitsIsOfferedAgain) {
  Node node;
  node.host.atomics_wait = true;
  EXPECT_EQ(node.Receive(MakeFetchAdd(kRqPsn, 5, 64)), DropReason::kNone);
  EXPECT_TRUE(node.effects.offer_again);
  EXPECT_TRUE(node.PollAll().empty());
  node.host.atomics_wait = false;
  EXPECT_EQ(node.Receive(MakeFetchAdd(kRqPsn, 5, 64)), DropReason::kNone);
  EXPECT_FALSE(node.effects.offer_again);
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa + 64), 5u);
  EXPECT_EQ(node.PollAll().size(), 1u);
}

}  // namespace
}  // namespace roci::roce
