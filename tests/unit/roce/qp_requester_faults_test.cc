// The requester of a reliable connection: local failures, and the largest messages.
#include "tests/unit/roce/qp_requester_testing.h"
#include "tests/unit/sanitized.h"

namespace roci::roce {
namespace {

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
  wqe.signaled = false;
  node.host.bad_send = CompletionStatus::kLocalQpOperationError;
  EXPECT_TRUE(node.Run().empty());
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalQpOperationError);
  EXPECT_EQ(node.host.send_completions[0].wr_id, 1000u);
  EXPECT_TRUE(node.host.send_completions[0].signaled);  // errors are always signaled
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
      {WorkOpcode::kRdmaRead, 8, 0, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kCompareSwap, 8, 0, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kAtomicWrite, 8, 0, CompletionStatus::kLocalQpOperationError},
      {WorkOpcode::kFlush, 8, 0, CompletionStatus::kLocalQpOperationError},
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

TEST(QpRequester, TransmitFaultFailsTheRequestAndStopsLaterRequests) {
  Node node;
  for (int i = 0; i < 4; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 4u);
  node.qp.HandleTransmitFault(node.host, node.now, packets[1].tx);
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_TRUE(node.host.send_completions.empty());
  // The peer detects the gap before packets 2 and 3 and sends a NAK.
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
  EXPECT_EQ(node.Run().size(), 1u);  // the READ waits for the ACK of the SEND
  node.Receive(MakeAck(Psn(0xFFFFF0)));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 1u << 31);
  if (kSanitized) return;  // 2^23 packets would take half a minute
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
