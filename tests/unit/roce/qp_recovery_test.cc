// The requester of a reliable connection under loss: retries, timers, NAKs.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;
constexpr TimeNs kTimeoutNs = 4096ull << 14;

std::vector<Psn> PsnsOf(const std::vector<WirePacket>& packets) {
  std::vector<Psn> psns;
  for (const WirePacket& packet : packets) psns.push_back(packet.tx.psn);
  return psns;
}

void PostSends(Node& node, int count) {
  for (int i = 0; i < count; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
}

// ---- Timeout ----

TEST(QpRecovery, TimerRunsOnlyWhileSomethingIsOutstanding) {
  Node node;
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  PostSends(node, 2);
  node.Run();
  EXPECT_EQ(node.qp.NextTimeout(), node.now + kTimeoutNs);
  node.now += 1000;
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(node.qp.NextTimeout(), node.now + kTimeoutNs);  // progress restarts the timer
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
}

TEST(QpRecovery, LaterPacketsDoNotPutTheTimerOff) {
  Node node;
  PostSends(node, 1);
  node.Run();
  const TimeNs deadline = node.qp.NextTimeout();
  node.now += 1000;
  PostSends(node, 1);
  node.Run();
  EXPECT_EQ(node.qp.NextTimeout(), deadline);
}

TEST(QpRecovery, EveryTimeoutCode) {
  for (uint8_t code = 1; code <= 31; ++code) {
    NodeOptions options;
    options.timeout = code;
    Node node(options);
    PostSends(node, 1);
    node.Run();
    EXPECT_EQ(node.qp.NextTimeout(), node.now + (TimeNs{4096} << code));
  }
}

TEST(QpRecovery, TimeoutZeroIsNever) {
  NodeOptions options;
  options.timeout = 0;
  Node node(options);
  PostSends(node, 1);
  node.Run();
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(node.host.send_completions.size(), 1u);
}

TEST(QpRecovery, TimeoutGoesBackToTheOldestUnacknowledged) {
  Node node;
  PostSends(node, 3);
  node.Run();
  node.Receive(MakeAck(kSqPsn));
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn + 1, kSqPsn + 2}));
  EXPECT_EQ(node.host.count(QpCounter::kAckTimeouts), 1u);
  EXPECT_EQ(node.host.count(QpCounter::kRetransmittedPackets), 2u);
  EXPECT_EQ(node.qp.NextTimeout(), node.now + kTimeoutNs);
  node.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.fetches, 4u);  // the requests were not fetched again
}

TEST(QpRecovery, EarlyTimeoutCallDoesNothing) {
  Node node;
  PostSends(node, 1);
  node.Run();
  node.qp.HandleTimeout(node.host, node.now + kTimeoutNs - 1);
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_EQ(node.host.count(QpCounter::kAckTimeouts), 0u);
}

TEST(QpRecovery, RetryGoesBackIntoTheMiddleOfAMessage) {
  Node node;
  for (uint32_t i = 0; i < 1024; ++i) node.host.bytes[i] = PayloadByte(i);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 3 * kMtu);
  node.Run();
  node.Receive(MakeAck(kSqPsn));
  node.PassTimeout();
  node.host.bytes[kMtu + 1] = std::byte{0xC3};  // a retransmission reads the memory again
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcWriteMiddle);
  EXPECT_EQ(packets[0].payload[1], std::byte{0xC3});
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcWriteLast);
  EXPECT_TRUE(packets[1].tx.ack_request);
}

TEST(QpRecovery, RetriesAreCountedAndEnd) {
  for (uint8_t retries = 0; retries <= 7; ++retries) {
    NodeOptions options;
    options.retry_count = retries;
    Node node(options);
    PostSends(node, 2);
    node.Run();
    uint32_t sent = 1;
    while (node.qp.state() != QpState::kErr) {
      ASSERT_TRUE(node.PassTimeout());
      if (!node.PollAll().empty()) ++sent;
    }
    EXPECT_EQ(sent, retries + 1u);
    ASSERT_EQ(node.host.send_completions.size(), 2u);
    EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kRetryExceeded);
    EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(node.host.count(QpCounter::kRetryExceeded), 1u);
  }
}

TEST(QpRecovery, ProgressRestoresTheRetries) {
  NodeOptions options;
  options.retry_count = 1;
  Node node(options);
  PostSends(node, 10);
  node.Run();
  for (uint32_t i = 0; i < 10; ++i) {
    node.PassTimeout();
    EXPECT_FALSE(node.PollAll().empty());
    node.Receive(MakeAck(kSqPsn + i));
  }
  EXPECT_EQ(node.host.send_completions.size(), 10u);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpRecovery, AckBehindTheRetransmissionMovesItForward) {
  Node node;
  PostSends(node, 5);
  node.Run();
  node.PassTimeout();
  EXPECT_EQ(node.Poll()->tx.psn, kSqPsn);
  // The peer had received everything up to kSqPsn + 3.
  node.Receive(MakeAck(kSqPsn + 3));
  EXPECT_EQ(PsnsOf(node.PollAll()), std::vector{kSqPsn + 4});
}

TEST(QpRecovery, BackPressureDoesNotRunTheTimer) {
  Node node;
  PostSends(node, 1);
  node.Run();
  node.PassTimeout();
  // The retransmission was not sent yet, so no ACK is due.
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_TRUE(node.qp.HasTransmit());
}

TEST(QpRecovery, WindowHoldsForRetransmissions) {
  NodeOptions options;
  options.limits.window_packets = 4;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 10 * kMtu);
  EXPECT_EQ(node.Run().size(), 4u);
  node.PassTimeout();
  EXPECT_EQ(node.PollAll().size(), 4u);
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn + 4, kSqPsn + 5}));
}

// ---- Sequence NAK ----

TEST(QpRecovery, SequenceNakGoesBackAndAcknowledgesEarlierRequests) {
  Node node;
  PostSends(node, 5);
  node.Run();
  node.Receive(MakeNak(kSqPsn + 2, NakCode::kPsnSequenceError));
  EXPECT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn + 2, kSqPsn + 3, kSqPsn + 4}));
  EXPECT_EQ(node.host.count(QpCounter::kPacketSequenceErrors), 1u);
}

TEST(QpRecovery, RepeatedNakOfTheSameLossGoesBackOnce) {
  Node node;
  PostSends(node, 3);
  node.Run();
  node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  EXPECT_EQ(node.PollAll().size(), 3u);
  EXPECT_EQ(node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError)),
            DropReason::kStaleAcknowledge);
  EXPECT_TRUE(node.PollAll().empty());
  // The retransmission is lost, too: the timer detects it.
  node.PassTimeout();
  EXPECT_EQ(node.PollAll().size(), 3u);
}

TEST(QpRecovery, SequenceNaksCountAsRetries) {
  NodeOptions options;
  options.retry_count = 0;
  Node node(options);
  PostSends(node, 2);
  node.Run();
  node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kRetryExceeded);
}

// ---- RNR ----

TEST(QpRecovery, NotReadyWaitsAsLongAsTheTimerSays) {
  for (uint8_t code = 0; code < 32; ++code) {
    Node node;
    PostSends(node, 3);
    node.Run();
    node.Receive(MakeRnrNak(kSqPsn + 1, code));
    EXPECT_EQ(node.host.send_completions.size(), 1u);
    EXPECT_FALSE(node.qp.HasTransmit());
    EXPECT_EQ(node.qp.NextTimeout(), node.now + kRnrTimerNs[code]);
    PostSends(node, 1);
    EXPECT_TRUE(node.Run().empty());
    node.PassTimeout();
    EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn + 1, kSqPsn + 2, kSqPsn + 3}));
    EXPECT_EQ(node.qp.NextTimeout(), node.now + kTimeoutNs);
  }
}

TEST(QpRecovery, NotReadyIsGivenUpAfterItsRetries) {
  NodeOptions options;
  options.rnr_retry = 2;
  options.retry_count = 0;  // does not limit RNR retries
  Node node(options);
  PostSends(node, 2);
  node.Run();
  for (int i = 0; i < 2; ++i) {
    node.Receive(MakeRnrNak(kSqPsn, 1));
    node.PassTimeout();
    EXPECT_EQ(node.PollAll().size(), 2u);
  }
  node.Receive(MakeRnrNak(kSqPsn, 1));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kRnrRetryExceeded);
  EXPECT_EQ(node.host.count(QpCounter::kRnrRetryExceeded), 1u);
}

TEST(QpRecovery, RnrRetrySevenIsForEver) {
  NodeOptions options;
  options.rnr_retry = 7;
  Node node(options);
  PostSends(node, 1);
  node.Run();
  for (int i = 0; i < 1000; ++i) {
    node.Receive(MakeRnrNak(kSqPsn, 1));
    node.PassTimeout();
    ASSERT_EQ(node.PollAll().size(), 1u);
  }
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
}

// An RNR NAK restores the retry count. Otherwise a slow receiver on a lossy link would end the
// queue pair even with rnr_retry 7 (infinite).
TEST(QpRecovery, AnRnrNakRestoresTheRetries) {
  NodeOptions options;
  options.rnr_retry = 7;
  Node node(options);
  PostSends(node, 1);
  node.Run();
  for (int i = 0; i < 100; ++i) {
    node.PassTimeout();  // the packet was lost
    ASSERT_EQ(node.PollAll().size(), 1u);
    node.Receive(MakeRnrNak(kSqPsn, 1));
    node.PassTimeout();
    ASSERT_EQ(node.PollAll().size(), 1u);
  }
  EXPECT_TRUE(node.host.send_completions.empty());
}

TEST(QpRecovery, WhileWaitingOtherNaksMeanNothing) {
  Node node;
  PostSends(node, 3);
  node.Run();
  node.Receive(MakeRnrNak(kSqPsn, 12));
  const TimeNs deadline = node.qp.NextTimeout();
  // Linux sends a sequence NAK for the packets that followed. The network may duplicate the RNR
  // NAK.
  node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  node.Receive(MakeRnrNak(kSqPsn, 12));
  EXPECT_FALSE(node.qp.HasTransmit());
  EXPECT_EQ(node.qp.NextTimeout(), deadline);
  EXPECT_EQ(node.host.count(QpCounter::kRnrNaksReceived), 1u);
}

TEST(QpRecovery, AckAfterAnRnrNakEndsTheWait) {
  Node node;
  PostSends(node, 3);
  node.Run();
  node.Receive(MakeRnrNak(kSqPsn + 1, 12));
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(PsnsOf(node.PollAll()), std::vector{kSqPsn + 2});
  node.Receive(MakeRnrNak(kSqPsn + 2, 12));
  node.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(node.qp.NextTimeout(), kNever);  // nothing is left to wait for
}

// ---- READ and atomics ----

TEST(QpRecovery, GapInAResponseAsksForTheRestOfTheRead) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 4 * kMtu, 0, 1024);
  node.Run();
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseFirst, kSqPsn, kMtu));
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseMiddle, kSqPsn + 2, kMtu)),
            DropReason::kOutOfSequence);
  EXPECT_EQ(node.Receive(MakeReadResponse(Opcode::kRcReadResponseLast, kSqPsn + 3, kMtu)),
            DropReason::kOutOfSequence);
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 1);
  EXPECT_EQ(packets[0].tx.ext.reth.va, ScriptedHost::kMemoryVa + 1024 + kMtu);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 3 * kMtu);
  EXPECT_EQ(node.host.count(QpCounter::kImpliedNaks), 1u);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseFirst, kSqPsn + 1, kMtu));
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseMiddle, kSqPsn + 2, kMtu));
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseLast, kSqPsn + 3, kMtu));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
}

TEST(QpRecovery, TimeoutInAReadAsksForItsRestAndLaterRequestsFollow) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 3 * kMtu);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseFirst, kSqPsn, kMtu));
  node.PassTimeout();
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 1);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 2 * kMtu);
  EXPECT_EQ(packets[1].tx.psn, kSqPsn + 3);
}

TEST(QpRecovery, AckBehindAnUnansweredReadImpliesItsLoss) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Receive(MakeAck(kSqPsn + 2));
  // The SEND before the READ completes, the SEND behind it waits for the READ.
  EXPECT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn + 1, kSqPsn + 2}));
  EXPECT_EQ(node.host.count(QpCounter::kImpliedNaks), 1u);
}

TEST(QpRecovery, NakBehindAnUnansweredReadGoesBackToTheRead) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  PostSends(node, 2);
  node.Run();
  node.Receive(MakeNak(kSqPsn + 1, NakCode::kPsnSequenceError));
  EXPECT_EQ(PsnsOf(node.PollAll()), (std::vector{kSqPsn, kSqPsn + 1, kSqPsn + 2}));
}

TEST(QpRecovery, LostAtomicResponseIsAskedForAgainWithTheSamePsn) {
  Node node;
  node.host.PostSend(WorkOpcode::kFetchAdd, 8).atomic.compare_add = 3;
  node.host.PostSend(WorkOpcode::kFetchAdd, 8).atomic.compare_add = 4;
  node.Run();
  EXPECT_EQ(node.Receive(MakeAtomicAck(kSqPsn + 1, 1)), DropReason::kOutOfSequence);
  EXPECT_TRUE(node.host.send_completions.empty());
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn);
  EXPECT_EQ(packets[0].tx.ext.atomic.swap_add, 3u);
  node.Receive(MakeAtomicAck(kSqPsn, 1));
  node.Receive(MakeAtomicAck(kSqPsn + 1, 2));
  EXPECT_EQ(node.host.send_completions.size(), 2u);
}

TEST(QpRecovery, RetryDoesNotCountReadsTwice) {
  NodeOptions options;
  options.max_rd_atomic = 1;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.Run();
  node.PassTimeout();
  EXPECT_EQ(node.PollAll().size(), 1u);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_EQ(node.PollAll().size(), 1u);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn + 1, 8));
  EXPECT_EQ(node.host.send_completions.size(), 2u);
}

TEST(QpRecovery, LocalKeyRevokedBeforeARetransmission) {
  Node node;
  PostSends(node, 2);
  node.Run();
  node.host.grants.erase(ScriptedHost::kLkey.value());
  node.PassTimeout();
  EXPECT_TRUE(node.PollAll().empty());
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kWorkRequestFlushed);
}

}  // namespace
}  // namespace roci::roce
