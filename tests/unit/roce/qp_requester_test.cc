// The requester of a reliable connection without loss: packets, order, windows, completions.
#include "tests/unit/roce/qp_requester_testing.h"

namespace roci::roce {
namespace {

TEST(QpRequester, SendOfEveryLengthClassIsCutAtThePathMtu) {
  const struct {
    uint32_t length;
    std::vector<Opcode> opcodes;
    uint32_t last_bytes;
  } cases[] = {
      {0, {Opcode::kRcSendOnly}, 0},
      {1, {Opcode::kRcSendOnly}, 1},
      {kMtu, {Opcode::kRcSendOnly}, kMtu},
      {kMtu + 1, {Opcode::kRcSendFirst, Opcode::kRcSendLast}, 1},
      {2 * kMtu, {Opcode::kRcSendFirst, Opcode::kRcSendLast}, kMtu},
      {2 * kMtu + 3, {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast}, 3},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.length);
    Node node;
    FillMemory(node.host);
    node.host.PostSend(WorkOpcode::kSend, c.length, 64);
    const auto packets = node.Run();
    EXPECT_EQ(OpcodesOf(packets), c.opcodes);
    std::vector<std::byte> sent;
    for (size_t i = 0; i < packets.size(); ++i) {
      const bool is_last = i + 1 == packets.size();
      EXPECT_EQ(packets[i].tx.psn, kSqPsn + static_cast<uint32_t>(i));
      EXPECT_EQ(packets[i].tx.dest_qpn, kPeerQpn);
      EXPECT_EQ(packets[i].tx.ack_request, is_last);
      EXPECT_EQ(packets[i].payload.size(), is_last ? c.last_bytes : kMtu);
      sent.insert(sent.end(), packets[i].payload.begin(), packets[i].payload.end());
    }
    EXPECT_EQ(sent, BytesAt(node.host, 64, c.length));
  }
}

TEST(QpRequester, EveryPathMtu) {
  for (uint32_t code = 1; code <= 5; ++code) {
    NodeOptions options;
    options.path_mtu = static_cast<PathMtu>(code);
    const uint32_t mtu = PathMtuBytes(options.path_mtu);
    Node node(options);
    node.host.PostSend(WorkOpcode::kRdmaWrite, 2 * mtu + 5);
    const auto packets = node.Run();
    ASSERT_EQ(packets.size(), 3u);
    EXPECT_EQ(packets[0].payload.size(), mtu);
    EXPECT_EQ(packets[1].payload.size(), mtu);
    EXPECT_EQ(packets[2].payload.size(), 5u);
  }
}

TEST(QpRequester, ImmediateDataIsOnTheLastPacketOnly) {
  Node node;
  SendWqe& wqe = node.host.PostSend(WorkOpcode::kSendWithImm, kMtu + 1);
  wqe.immediate = SwapNetworkOrder(0x01020304);
  wqe.solicited = true;
  node.host.PostSend(WorkOpcode::kSendWithImm, 5).immediate = SwapNetworkOrder(0x0A0B0C0D);
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets),
            (std::vector{Opcode::kRcSendFirst, Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm}));
  EXPECT_FALSE(packets[0].tx.solicited);
  EXPECT_TRUE(packets[1].tx.solicited);
  EXPECT_EQ(packets[1].tx.ext.imm.value, 0x01020304u);
  EXPECT_EQ(packets[2].tx.ext.imm.value, 0x0A0B0C0Du);
  EXPECT_FALSE(packets[2].tx.solicited);
}

TEST(QpRequester, SendWithInvalidateNamesTheKey) {
  Node node;
  node.host.PostSend(WorkOpcode::kSendWithInvalidate, kMtu + 1).invalidate_key = 0xABCD;
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets), (std::vector{Opcode::kRcSendFirst, Opcode::kRcSendLastInvalidate}));
  EXPECT_EQ(packets[1].tx.ext.ieth.rkey, Key(0xABCD));
}

TEST(QpRequester, WriteHasItsRethOnTheFirstPacketOnly) {
  Node node;
  SendWqe& wqe = node.host.PostSend(WorkOpcode::kRdmaWrite, 2 * kMtu + 1, 0, 512);
  wqe.solicited = true;  // ignored without immediate data
  SendWqe& with_imm = node.host.PostSend(WorkOpcode::kRdmaWriteWithImm, kMtu + 1);
  with_imm.immediate = SwapNetworkOrder(7);
  with_imm.solicited = true;
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets),
            (std::vector{Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast,
                         Opcode::kRcWriteFirst, Opcode::kRcWriteLastImm}));
  EXPECT_EQ(packets[0].tx.ext.reth.va, ScriptedHost::kMemoryVa + 512);
  EXPECT_EQ(packets[0].tx.ext.reth.rkey, ScriptedHost::kRkey);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 2 * kMtu + 1);
  EXPECT_FALSE(packets[2].tx.solicited);
  EXPECT_TRUE(packets[4].tx.solicited);
  EXPECT_EQ(packets[4].tx.ext.imm.value, 7u);
}

TEST(QpRequester, AcknowledgementsAreCumulative) {
  Node node;
  for (int i = 0; i < 3; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_EQ(node.Receive(MakeAck(kSqPsn + 1)), DropReason::kNone);
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].wr_id, 1000u);
  EXPECT_EQ(node.host.send_completions[1].wr_id, 1001u);
  EXPECT_EQ(node.host.send_completions[1].slot, 1u);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].opcode, CompletionOpcode::kSend);
  node.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
}

TEST(QpRequester, MessageCompletesWithItsLastPacketOnly) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaWrite, 3 * kMtu);
  node.Run();
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_TRUE(node.host.send_completions.empty());
  node.Receive(MakeAck(kSqPsn + 2));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].opcode, CompletionOpcode::kRdmaWrite);
}

TEST(QpRequester, UnsignaledRequestsAreMarkedSo) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8).signaled = false;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Receive(MakeAck(kSqPsn + 1));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_FALSE(node.host.send_completions[0].signaled);
  EXPECT_TRUE(node.host.send_completions[1].signaled);
}

TEST(QpRequester, SignalAllMakesEveryRequestSignaled) {
  NodeOptions options;
  options.sq_sig_all = true;
  Node node(options);
  node.host.PostSend(WorkOpcode::kSend, 8).signaled = false;
  node.Run();
  node.Receive(MakeAck(kSqPsn));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_TRUE(node.host.send_completions[0].signaled);
}

TEST(QpRequester, StaleAndGhostAcknowledgementsChangeNothing) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(node.Receive(MakeAck(kSqPsn)), DropReason::kStaleAcknowledge);
  EXPECT_EQ(node.Receive(MakeNak(kSqPsn, NakCode::kRemoteAccessError)),
            DropReason::kStaleAcknowledge);
  EXPECT_EQ(node.Receive(MakeAck(kSqPsn + 2)), DropReason::kGhostAcknowledge);
  EXPECT_EQ(node.Receive(MakeNak(kSqPsn + 77, NakCode::kInvalidRequest)),
            DropReason::kGhostAcknowledge);
  EXPECT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpRequester, ReservedSyndromesAreIgnored) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  for (const int syndrome : {0x40, 0x5F, 0x80, 0xE1, 0xFF}) {
    WirePacket ack = MakeAck(kSqPsn);
    ack.tx.ext.aeth.syndrome = static_cast<uint8_t>(syndrome);
    EXPECT_EQ(node.Receive(ack), DropReason::kInvalidAcknowledge);
  }
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpRequester, WindowBoundsThePacketsInFlight) {
  NodeOptions options;
  options.limits.window_packets = 8;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 20 * kMtu);
  EXPECT_EQ(node.Run().size(), 8u);
  EXPECT_FALSE(node.qp.HasTransmit());
  node.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(node.PollAll().size(), 3u);
  node.Receive(MakeAck(kSqPsn + 10));
  EXPECT_EQ(node.PollAll().size(), 8u);
}

TEST(QpRequester, PacketThatClosesTheWindowAsksForAnAck) {
  NodeOptions options;
  options.limits.window_packets = 8;
  options.limits.ack_every_packets = 100;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 20 * kMtu);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(packets[i].tx.ack_request, i == 7) << i;
}

TEST(QpRequester, LongMessageAsksForAnAckEveryNPackets) {
  NodeOptions options;
  options.limits.ack_every_packets = 4;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 10 * kMtu);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(packets[i].tx.ack_request, i == 3 || i == 7 || i == 9) << i;
  }
}

TEST(QpRequester, WorkIsFetchedOnlyAsFarAsItCanBeSent) {
  NodeOptions options;
  options.limits.window_packets = 4;
  Node node(options);
  for (int i = 0; i < 10; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 4u);
  EXPECT_EQ(node.host.sends.size(), 6u);
}

TEST(QpRequester, RecordsBoundTheRequestsInFlight) {
  NodeOptions options;
  options.records = 2;
  Node node(options);
  for (int i = 0; i < 5; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 2u);
  EXPECT_FALSE(node.qp.HasTransmit());
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(node.PollAll().size(), 1u);
}

TEST(QpRequester, PsnWrapsInsideAMessage) {
  NodeOptions options;
  options.sq_psn = Psn(0xFFFFFE);
  Node node(options);
  node.host.PostSend(WorkOpcode::kSend, 4 * kMtu);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[1].tx.psn, Psn(0xFFFFFF));
  EXPECT_EQ(packets[2].tx.psn, Psn(0));
  node.Receive(MakeAck(Psn(0)));
  EXPECT_TRUE(node.host.send_completions.empty());
  node.Receive(MakeAck(Psn(1)));
  EXPECT_EQ(node.host.send_completions.size(), 1u);
}

}  // namespace
}  // namespace roci::roce
