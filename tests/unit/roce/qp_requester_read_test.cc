// The requester of a reliable connection: READ and atomics.
#include "tests/unit/roce/qp_requester_testing.h"

namespace roci::roce {
namespace {

// ---- READ and atomics ----

TEST(QpRequester, ReadTakesOnePsnPerResponse) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 2 * kMtu + 4, 1024, 256);
  node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets), (std::vector{Opcode::kRcReadRequest, Opcode::kRcSendOnly}));
  EXPECT_EQ(packets[0].tx.ext.reth.va, ScriptedHost::kMemoryVa + 256);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 2 * kMtu + 4);
  EXPECT_TRUE(packets[0].payload.empty());
  EXPECT_EQ(packets[1].tx.psn, kSqPsn + 3);
}

TEST(QpRequester, ReadResponsesArePlacedInOrder) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 2 * kMtu + 4, 1024);
  node.Run();
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseFirst, kSqPsn, kMtu, 1)),
            DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseMiddle, kSqPsn + 1, kMtu, 2)),
            DropReason::kNone);
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseLast, kSqPsn + 2, 4, 3)),
            DropReason::kNone);
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  const Completion& completion = node.host.send_completions[0];
  EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  EXPECT_EQ(completion.opcode, CompletionOpcode::kRdmaRead);
  EXPECT_EQ(completion.byte_length, 2 * kMtu + 4);
  EXPECT_EQ(node.host.bytes[1024], PayloadByte(0, 1));
  EXPECT_EQ(node.host.bytes[1024 + kMtu + 5], PayloadByte(5, 2));
  EXPECT_EQ(node.host.bytes[1024 + 2 * kMtu + 3], PayloadByte(3, 3));
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
}

TEST(QpRequester, ReadOfNothing) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 0);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 0u);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 0));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].byte_length, 0u);
}

TEST(QpRequester, ReadResponseAcknowledgesEarlierRequests) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.Run();
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn + 2, 8));
  ASSERT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.send_completions[0].wr_id, 1000u);
  EXPECT_EQ(node.host.send_completions[2].opcode, CompletionOpcode::kRdmaRead);
}

TEST(QpRequester, AtomicsCarryTheirOperandsAndReturnTheOriginal) {
  Node node;
  SendWqe& swap = node.host.PostSend(WorkOpcode::kCompareSwap, 8, 64, 128);
  swap.atomic.compare_add = 11;
  swap.atomic.swap = 22;
  node.host.PostSend(WorkOpcode::kFetchAdd, 8, 72, 128).atomic.compare_add = 33;
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets), (std::vector{Opcode::kRcCompareSwap, Opcode::kRcFetchAdd}));
  EXPECT_EQ(packets[0].tx.ext.atomic.compare, 11u);
  EXPECT_EQ(packets[0].tx.ext.atomic.swap_add, 22u);
  EXPECT_EQ(packets[0].tx.ext.atomic.va, ScriptedHost::kMemoryVa + 128);
  EXPECT_EQ(packets[1].tx.ext.atomic.swap_add, 33u);
  node.Receive(MakeAtomicAck(kSqPsn, 0x1122334455667788));
  node.Receive(MakeAtomicAck(kSqPsn + 1, 5));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].opcode, CompletionOpcode::kCompareSwap);
  EXPECT_EQ(node.host.send_completions[0].byte_length, 8u);
  EXPECT_EQ(node.host.send_completions[1].opcode, CompletionOpcode::kFetchAdd);
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa + 64), 0x1122334455667788u);
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa + 72), 5u);
}

TEST(QpRequester, MaxRdAtomicBoundsReadsAndAtomicsTogether) {
  NodeOptions options;
  options.max_rd_atomic = 2;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kFetchAdd, 8);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 2u);
  EXPECT_FALSE(node.qp.HasTransmit());
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_EQ(OpcodesOf(node.PollAll()), (std::vector{Opcode::kRcReadRequest, Opcode::kRcSendOnly}));
}

TEST(QpRequester, FenceWaitsForReadsAndAtomicsOnly) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kSend, 8).fence = true;
  EXPECT_EQ(node.Run().size(), 2u);
  EXPECT_FALSE(node.qp.HasTransmit());
  // The fence waits for the response of the READ, not for the ACK of the SEND before it.
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_EQ(node.PollAll().size(), 1u);
}

// Otherwise the responder would have to request a retransmission of the atomic, which costs a
// retry.
TEST(QpRequester, AtomicsWaitForAFlushForPersistence) {
  for (const WorkOpcode atomic :
       {WorkOpcode::kFetchAdd, WorkOpcode::kCompareSwap, WorkOpcode::kAtomicWrite}) {
    for (const uint8_t type : {Feth::kGlobalVisibility, Feth::kPersistence}) {
      Node node;
      node.host.PostSend(WorkOpcode::kFlush, 8).flush.placement_type = type;
      node.host.PostSend(WorkOpcode::kSend, 8);
      node.host.PostSend(atomic, 8);
      const bool waits = type == Feth::kPersistence;
      EXPECT_EQ(node.Run().size(), waits ? 2u : 3u);
      EXPECT_EQ(node.qp.HasTransmit(), false);
      node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 0));
      EXPECT_EQ(node.PollAll().size(), waits ? 1u : 0u);
    }
  }
}

TEST(QpRequester, BadReadResponsesEndTheQp) {
  const struct {
    const char* what;
    Opcode opcode;
    uint32_t bytes;
  } cases[] = {
      {"short first", Opcode::kRcReadResponseFirst, kMtu - 4},
      {"only where more is to come", Opcode::kRcReadResponseOnly, kMtu},
      {"last where more is to come", Opcode::kRcReadResponseLast, 4},
      {"empty middle", Opcode::kRcReadResponseMiddle, 0},
      {"too long", Opcode::kRcReadResponseFirst, kMtu + 4},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Node node;
    node.host.PostSend(WorkOpcode::kRdmaRead, 2 * kMtu);
    node.Run();
    node.Receive(MakeReadResponse(c.opcode, kSqPsn, c.bytes));
    ASSERT_EQ(node.host.send_completions.size(), 1u);
    EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kBadResponse);
    EXPECT_EQ(node.qp.state(), QpState::kErr);
  }
}

TEST(QpRequester, ResponseToARequestThatIsNoReadIsIgnored) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8)),
            DropReason::kUnexpectedOpcode);
  EXPECT_EQ(node.Receive(MakeAtomicAck(kSqPsn, 1)), DropReason::kUnexpectedOpcode);
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

}  // namespace
}  // namespace roci::roce
