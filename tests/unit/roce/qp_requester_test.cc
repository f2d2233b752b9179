// The requester of a reliable connection without loss: packets, order, windows, completions.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;

std::vector<Opcode> OpcodesOf(const std::vector<WirePacket>& packets) {
  std::vector<Opcode> opcodes;
  for (const WirePacket& packet : packets) opcodes.push_back(packet.tx.opcode);
  return opcodes;
}

void FillMemory(ScriptedHost& host) {
  for (size_t i = 0; i < host.bytes.size(); ++i)
    host.bytes[i] = PayloadByte(static_cast<uint32_t>(i));
}

std::vector<std::byte> BytesAt(const ScriptedHost& host, size_t offset, size_t length) {
  return {host.bytes.begin() + static_cast<long>(offset),
          host.bytes.begin() + static_cast<long>(offset + length)};
}

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
  node.host.PostSend(WorkOpcode::kSendWithInvalidate, kMtu + 1).immediate = 0xABCD;
  const auto packets = node.Run();
  ASSERT_EQ(OpcodesOf(packets), (std::vector{Opcode::kRcSendFirst, Opcode::kRcSendLastInvalidate}));
  EXPECT_EQ(packets[1].tx.ext.ieth.rkey, Key(0xABCD));
}

TEST(QpRequester, WriteHasItsRethOnTheFirstPacketOnly) {
  Node node;
  SendWqe& wqe = node.host.PostSend(WorkOpcode::kRdmaWrite, 2 * kMtu + 1, 0, 512);
  wqe.solicited = true;  // means nothing without immediate data
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
  swap.compare_add = 11;
  swap.swap = 22;
  node.host.PostSend(WorkOpcode::kFetchAdd, 8, 72, 128).compare_add = 33;
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
  // The read answers; the SEND before the fence need not be acknowledged.
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_EQ(node.PollAll().size(), 1u);
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

// ---- Failures on this side ----

TEST(QpRequester, LocalKeyFailsTheRequestAfterThoseBeforeIt) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kSend, 8).first_sge.lkey = Key(0xBAD);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1u);
  EXPECT_TRUE(node.host.send_completions.empty());
  node.Receive(MakeAck(kSqPsn));
  ASSERT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

TEST(QpRequester, BoundsInTheMiddleOfAMessageFailIt) {
  Node node;
  node.host.grants[ScriptedHost::kLkey.value()].length = kMtu + 10;
  node.host.PostSend(WorkOpcode::kSend, 2 * kMtu);
  EXPECT_EQ(node.Run().size(), 1u);
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

TEST(QpRequester, ReadIntoMemoryThatMayNotBeWrittenFails) {
  Node node;
  node.host.grants[ScriptedHost::kLkey.value()].access = memory::Access::kNone;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.Run();
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

TEST(QpRequester, FaultWhilePlacingAnAtomicsResultFails) {
  Node node;
  node.host.PostSend(WorkOpcode::kFetchAdd, 8);
  node.Run();
  node.host.place_faults = true;
  node.Receive(MakeAtomicAck(kSqPsn, 1));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalProtectionError);
}

TEST(QpRequester, MalformedRequestCompletesWithTheHostsStatus) {
  Node node;
  SendWqe& wqe = node.host.PostSend(WorkOpcode::kSend, 8);
  wqe.opcode = static_cast<WorkOpcode>(200);
  wqe.signaled = false;
  node.host.bad_send = CompletionStatus::kLocalQpOperationError;
  EXPECT_TRUE(node.Run().empty());
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalQpOperationError);
  EXPECT_EQ(node.host.send_completions[0].wr_id, 1000u);
  EXPECT_TRUE(node.host.send_completions[0].signaled);  // errors always are
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

TEST(QpRequester, RequestsThatCannotBeFailLocally) {
  const struct {
    WorkOpcode opcode;
    uint32_t length;
    uint8_t max_rd_atomic;
    CompletionStatus status;
  } cases[] = {
      {WorkOpcode::kSend, (1u << 31) + 1, 4, CompletionStatus::kLocalLengthError},
      {WorkOpcode::kFetchAdd, 4, 4, CompletionStatus::kLocalLengthError},
      {WorkOpcode::kRdmaRead, 8, 0, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kCompareSwap, 8, 0, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kBindMw, 0, 4, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kLocalInvalidate, 0, 4, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kAtomicWrite, 8, 4, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kFlush, 8, 4, CompletionStatus::kLocalQpOperationError},
  };
  for (const auto& c : cases) {
    NodeOptions options;
    options.max_rd_atomic = c.max_rd_atomic;
    Node node(options);
    node.host.PostSend(c.opcode, c.length);
    EXPECT_TRUE(node.Run().empty());
    ASSERT_EQ(node.host.send_completions.size(), 1u);
    EXPECT_EQ(node.host.send_completions[0].status, c.status);
    EXPECT_EQ(node.qp.state(), QpState::kErr);
  }
}

TEST(QpRequester, TransmitFaultFailsTheRequestAndStopsWhatFollows) {
  Node node;
  for (int i = 0; i < 4; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 4u);
  node.qp.HandleTransmitFault(node.host, node.now, packets[1].tx);
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_TRUE(node.host.send_completions.empty());
  // The peer saw the gap that packets 2 and 3 left, and says so.
  node.Receive(MakeNak(kSqPsn + 1, NakCode::kPsnSequenceError));
  ASSERT_EQ(node.host.send_completions.size(), 4u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.host.send_completions[3].status, CompletionStatus::kWorkRequestFlushed);
}

TEST(QpRequester, RemoteFaultsBecomeStatuses) {
  const struct {
    NakCode code;
    CompletionStatus status;
    QpCounter counter;
  } cases[] = {
      {NakCode::kInvalidRequest, CompletionStatus::kRemoteInvalidRequest,
       QpCounter::kReqRemoteInvalidRequest},
      {NakCode::kRemoteAccessError, CompletionStatus::kRemoteAccessError,
       QpCounter::kReqRemoteAccessErrors},
      {NakCode::kRemoteOperationalError, CompletionStatus::kRemoteOperationError,
       QpCounter::kReqRemoteOperationErrors},
      {NakCode::kInvalidRdRequest, CompletionStatus::kRemoteInvalidRequest,
       QpCounter::kReqRemoteInvalidRequest},
      {static_cast<NakCode>(17), CompletionStatus::kBadResponse, QpCounter::kReqBadResponses},
  };
  for (const auto& c : cases) {
    Node node;
    node.host.PostSend(WorkOpcode::kSend, 8);
    node.host.PostSend(WorkOpcode::kRdmaWrite, 2 * kMtu);
    node.host.PostSend(WorkOpcode::kSend, 8).signaled = false;
    node.host.PostRecv(100);
    node.Run();
    node.Receive(MakeNak(kSqPsn + 1, c.code));
    ASSERT_EQ(node.host.send_completions.size(), 3u);
    EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
    EXPECT_EQ(node.host.send_completions[1].status, c.status);
    EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_TRUE(node.host.send_completions[2].signaled);
    ASSERT_EQ(node.host.recv_completions.size(), 1u);
    EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(node.host.count(c.counter), 1u);
    EXPECT_EQ(node.qp.state(), QpState::kErr);
    EXPECT_EQ(node.qp.NextTimeout(), kNever);
  }
}

TEST(QpRequester, FatalNakBehindAReadWithoutItsAnswerFlushesTheRead) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  node.Run();
  node.Receive(MakeNak(kSqPsn + 1, NakCode::kRemoteAccessError));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kRemoteAccessError);
}

// ---- Size ----

TEST(QpRequester, ObjectsStaySmall) {
  EXPECT_LE(sizeof(Qp<ScriptedHost>), 1024u);
  EXPECT_LE(sizeof(SendRecord), 128u);
}

TEST(QpRequester, LargestReadTakesHalfThePsnSpaceAndNothingElseFitsBesideIt) {
  NodeOptions options;
  options.sq_psn = Psn(0xFFFFF0);
  Node node(options);
  node.host.grants[ScriptedHost::kLkey.value()].length = 1ull << 32;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kRdmaRead, 1u << 31);
  EXPECT_EQ(node.Run().size(), 1u);  // the SEND is to be acknowledged first
  node.Receive(MakeAck(Psn(0xFFFFF0)));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 1u << 31);
  constexpr uint32_t kPackets = 1u << 23;
  const Psn first = packets[0].tx.psn;
  WirePacket response = MakeReadResponse(Opcode::kRcReadResponseFirst, first, kMtu);
  for (uint32_t i = 0; i < kPackets; ++i) {
    response.tx.psn = first + i;
    response.tx.opcode = i == 0              ? Opcode::kRcReadResponseFirst
                         : i + 1 == kPackets ? Opcode::kRcReadResponseLast
                                             : Opcode::kRcReadResponseMiddle;
    ASSERT_EQ(node.Receive(response), DropReason::kNone) << i;
  }
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].byte_length, 1u << 31);
}

TEST(QpRequester, LargestWriteIsSentInWindows) {
  NodeOptions options;
  options.limits.window_packets = 1024;
  options.path_mtu = PathMtu::k4096;
  Node node(options);
  node.host.grants[ScriptedHost::kLkey.value()].length = 1ull << 32;
  node.host.PostSend(WorkOpcode::kRdmaWrite, 1u << 31);
  node.Work();
  uint64_t sent = 0;
  TxPacket tx;
  memory::SegmentList segments;
  while (node.host.send_completions.empty()) {
    ASSERT_TRUE(node.qp.PollTransmit(node.host, node.now, tx, segments));
    sent += tx.payload_length;
    if (tx.ack_request) node.Receive(MakeAck(tx.psn));
  }
  EXPECT_EQ(sent, 1ull << 31);
  EXPECT_EQ(tx.opcode, Opcode::kRcWriteLast);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
}

}  // namespace
}  // namespace roci::roce
