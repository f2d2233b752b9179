// States of a queue pair: accepted packets and requests, flush, drain, reset, events.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;

// ---- Packets by state ----

TEST(QpStates, PacketsAreDroppedWhereTheQpIsNotReady) {
  for (const QpState state : {QpState::kReset, QpState::kInit}) {
    Node node({}, state);
    node.host.PostRecv(100);
    EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)), DropReason::kQpState);
    EXPECT_EQ(node.Receive(MakeAck(kSqPsn)), DropReason::kQpState);
    EXPECT_TRUE(node.Run().empty());
    EXPECT_EQ(node.host.receives.size(), 1u);
  }
}

TEST(QpStates, RtrReceivesAndRaisesTheEventOnce) {
  Node node({}, QpState::kRtr);
  node.host.PostRecv(100);
  node.host.PostRecv(100);
  EXPECT_EQ(node.Receive(MakeAck(kSqPsn)), DropReason::kQpState);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)), DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8)), DropReason::kNone);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kCommunicationEstablished});
  EXPECT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.PollAll().size(), 1u);  // RTR acknowledges requests
}

TEST(QpStates, NoEventOnceInRts) {
  Node node;
  node.host.PostRecv(100);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_TRUE(node.host.events.empty());
}

TEST(QpStates, RtrSendsNothing) {
  Node node({}, QpState::kRtr);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_TRUE(node.Run().empty());
  node.BringTo(QpState::kRts);
  EXPECT_EQ(node.PollAll().size(), 1u);  // the request posted in RTR
}

TEST(QpStates, OtherTransportsAreDropped) {
  Node node;
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn, 8)), DropReason::kWrongTransport);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUdSendOnly, kRqPsn, 8)), DropReason::kWrongTransport);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kXrcSendOnly, kRqPsn, 8)),
            DropReason::kWrongTransport);
}

// ---- Modify ----

TEST(QpStates, RefusedModificationChangesNothing) {
  Node node({}, QpState::kInit);
  QpAttributes a;
  a.state = QpState::kRts;
  EXPECT_EQ(node.qp.Modify(node.host, a, kAttrState), ModifyResult::kBadTransition);
  a.state = QpState::kRtr;
  EXPECT_EQ(node.qp.Modify(node.host, a, kAttrState | kAttrPathMtu),
            ModifyResult::kMissingAttribute);
  a.state = QpState::kInit;
  a.port = 1;
  a.sq_psn = Psn(5);
  EXPECT_EQ(node.qp.Modify(node.host, a, kAttrState | kAttrPort | kAttrSqPsn),
            ModifyResult::kAttributeNotAllowed);
  EXPECT_EQ(node.qp.state(), QpState::kInit);
  EXPECT_NE(node.qp.attributes().sq_psn, Psn(5));
}

TEST(QpStates, WrongCurrentStateIsRefused) {
  Node node;
  QpAttributes a;
  a.state = QpState::kErr;
  a.cur_state = QpState::kSqd;
  EXPECT_EQ(node.qp.Modify(node.host, a, kAttrState | kAttrCurState), ModifyResult::kBadTransition);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpStates, QueryShowsWhereTheSequencesAre) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 3 * kMtu);
  node.Run();
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  QpAttributes a;
  node.qp.Query(a);
  EXPECT_EQ(a.state, QpState::kRts);
  EXPECT_EQ(a.cur_state, QpState::kRts);
  EXPECT_EQ(a.sq_psn, kSqPsn + 3);
  EXPECT_EQ(a.rq_psn, kRqPsn + 1);
  EXPECT_EQ(a.dest_qpn, kPeerQpn);
  EXPECT_FALSE(a.sq_draining);
}

TEST(QpStates, AttributesChangeWhileRunning) {
  Node node;
  node.attributes.min_rnr_timer = 20;
  node.attributes.access_flags = 0;
  EXPECT_EQ(node.Modify(QpState::kRts, kAttrMinRnrTimer | kAttrAccessFlags), ModifyResult::kOk);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  EXPECT_EQ(node.PollAll().at(0).tx.ext.aeth.syndrome, 0x20 | 20);
  node.host.PostRecv(100);
  node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

// ---- ERR ----

TEST(QpStates, ErrorFlushesBothQueuesInOrder) {
  Node node;
  for (int i = 0; i < 3; ++i) node.host.PostSend(WorkOpcode::kSend, 8).signaled = false;
  node.Run();
  for (int i = 0; i < 2; ++i) node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  for (int i = 0; i < 3; ++i) node.host.PostRecv(100);
  EXPECT_EQ(node.Modify(QpState::kErr), ModifyResult::kOk);
  ASSERT_EQ(node.host.send_completions.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(node.host.send_completions[i].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(node.host.send_completions[i].wr_id, 1000 + i);
    EXPECT_TRUE(node.host.send_completions[i].signaled);
  }
  ASSERT_EQ(node.host.recv_completions.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(node.host.recv_completions[i].status, CompletionStatus::kWorkRequestFlushed);
    EXPECT_EQ(node.host.recv_completions[i].wr_id, 2000 + i);
  }
  EXPECT_TRUE(node.host.events.empty());
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_EQ(node.host.count(QpCounter::kReqCqeFlushErrors), 5u);
  EXPECT_EQ(node.host.count(QpCounter::kRespCqeFlushErrors), 3u);
}

TEST(QpStates, RequestsPostedInErrorAreFlushed) {
  Node node;
  node.Modify(QpState::kErr);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostRecv(100);
  EXPECT_TRUE(node.Run().empty());
  EXPECT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.bad_send = CompletionStatus::kLocalQpOperationError;
  node.Work();
  EXPECT_EQ(node.host.send_completions.back().status, CompletionStatus::kWorkRequestFlushed);
}

TEST(QpStates, DeepQueuesAreFlushedInSteps) {
  Node node;
  constexpr int kDeep = 1000;
  for (int i = 0; i < kDeep; ++i) {
    node.host.PostSend(WorkOpcode::kSend, 8);
    node.host.PostRecv(8);
  }
  node.Modify(QpState::kErr);
  EXPECT_LE(node.host.send_completions.size(), 200u);
  EXPECT_LE(node.qp.NextTimeout(), node.now);
  int steps = 0;
  while (node.PassTimeout()) ASSERT_LT(++steps, 20);
  EXPECT_EQ(node.host.send_completions.size(), size_t{kDeep});
  EXPECT_EQ(node.host.recv_completions.size(), size_t{kDeep});
}

TEST(QpStates, ReceiveOfAnUnfinishedMessageIsFlushedFirst) {
  Node node;
  node.host.PostRecv(1000);
  node.host.PostRecv(1000);
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));
  node.Modify(QpState::kErr);
  ASSERT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.host.recv_completions[0].wr_id, 2000u);
}

TEST(QpStates, ErrorDropsPendingAnswers) {
  Node node;
  node.Receive(MakeReadRequest(kRqPsn, 3 * kMtu));
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 8));
  node.Modify(QpState::kErr);
  EXPECT_FALSE(node.qp.HasTransmit());
  EXPECT_TRUE(node.PollAll().empty());
}

TEST(QpStates, SharedReceiveQueueIsNotFlushedButTheLastReceiveIsReported) {
  NodeOptions options;
  options.uses_srq = true;
  Node node(options);
  node.host.PostRecv(1000);
  node.host.PostRecv(1000);
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));
  node.Modify(QpState::kErr);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.host.receives.size(), 1u);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kLastWqeReached});
  node.Work();
  EXPECT_EQ(node.host.events.size(), 1u);
}

TEST(QpStates, ErrorAgainDoesNothing) {
  Node node;
  node.Modify(QpState::kErr);
  EXPECT_EQ(node.Modify(QpState::kErr), ModifyResult::kOk);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

// ---- RESET ----

TEST(QpStates, ResetForgetsEverythingSilently) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostRecv(1000);
  node.Run();
  node.Receive(MakeRequest(Opcode::kRcSendFirst, kRqPsn, kMtu));
  EXPECT_EQ(node.Modify(QpState::kReset), ModifyResult::kOk);
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_FALSE(node.qp.HasTransmit());
  // The queue pair can be used again, with other PSNs.
  node.attributes.sq_psn = Psn(5);
  node.attributes.rq_psn = Psn(9);
  node.BringTo(QpState::kRts);
  node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, Psn(5));
  node.host.PostRecv(1000);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, Psn(9), 8)), DropReason::kNone);
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
}

TEST(QpStates, ErrorThenResetWhileStillFlushing) {
  Node node;
  for (int i = 0; i < 1000; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  node.Modify(QpState::kErr);
  const size_t flushed = node.host.send_completions.size();
  node.Modify(QpState::kReset);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  node.Work();
  EXPECT_EQ(node.host.send_completions.size(), flushed);
}

// ---- SQD ----

TEST(QpStates, DrainFinishesStartedRequestsAndRaisesTheEvent) {
  NodeOptions options;
  options.limits.window_packets = 2;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 3 * kMtu);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 2u);
  node.attributes.en_sqd_async_notify = true;
  EXPECT_EQ(node.Modify(QpState::kSqd, kAttrSqdNotify), ModifyResult::kOk);
  QpAttributes a;
  node.qp.Query(a);
  EXPECT_TRUE(a.sq_draining);
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(node.PollAll().size(), 1u);  // the rest of the WRITE, not the SEND
  EXPECT_TRUE(node.host.events.empty());
  node.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kSendQueueDrained});
  node.qp.Query(a);
  EXPECT_FALSE(a.sq_draining);
  EXPECT_TRUE(node.Run().empty());
  // Back in RTS, the rest is sent.
  EXPECT_EQ(node.Modify(QpState::kRts), ModifyResult::kOk);
  EXPECT_EQ(node.PollAll().size(), 1u);
  EXPECT_EQ(node.host.events.size(), 1u);
}

TEST(QpStates, DrainOfAnIdleQueueReportsAtOnce) {
  Node node;
  node.attributes.en_sqd_async_notify = true;
  node.Modify(QpState::kSqd, kAttrSqdNotify);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kSendQueueDrained});
}

TEST(QpStates, DrainWithoutNotificationIsSilent) {
  Node node;
  node.Modify(QpState::kSqd);
  EXPECT_TRUE(node.host.events.empty());
}

TEST(QpStates, ADrainNotificationIsAskedForEachTime) {
  Node node;
  node.attributes.en_sqd_async_notify = true;
  node.Modify(QpState::kSqd, kAttrSqdNotify);
  EXPECT_EQ(node.host.events.size(), 1u);
  node.Modify(QpState::kRts);
  node.Modify(QpState::kSqd);
  EXPECT_EQ(node.host.events.size(), 1u);
}

// As after ibv_modify_qp of a UD queue pair once the port's MTU has grown.
TEST(QpStates, AnImpossibleAttributeIsRefusedWhateverItsValue) {
  NodeOptions options;
  options.type = QpType::kUd;
  options.limits.max_path_mtu = PathMtu::k1024;
  Node node(options);
  node.attributes.path_mtu = PathMtu::k4096;
  EXPECT_EQ(node.Modify(QpState::kRts, kAttrPathMtu), ModifyResult::kAttributeNotAllowed);
}

TEST(QpStates, DrainRetransmitsAndReceives) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  node.Modify(QpState::kSqd);
  node.PassTimeout();
  EXPECT_EQ(node.PollAll().size(), 1u);
  node.host.PostRecv(8);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8)), DropReason::kNone);
  EXPECT_EQ(node.PollAll().size(), 1u);
}

TEST(QpStates, FenceHeldBackRequestIsNotBegunInDrain) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kSend, 8).fence = true;
  node.Run();
  node.attributes.en_sqd_async_notify = true;
  node.Modify(QpState::kSqd, kAttrSqdNotify);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kSendQueueDrained});
  EXPECT_TRUE(node.PollAll().empty());
  node.Modify(QpState::kRts);
  EXPECT_EQ(node.PollAll().size(), 1u);
}

// ---- Calls in random order ----

TEST(QpStates, CallsInAnyStateAreHarmless) {
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts}) {
    Node node({}, state);
    node.Work();
    node.qp.HandleTimeout(node.host, kNever - 1);
    node.PollAll();
    TxPacket packet;
    packet.opcode = Opcode::kRcSendOnly;
    packet.psn = kSqPsn;
    node.qp.HandleTransmitFault(node.host, 0, packet);
    packet.opcode = Opcode::kRcReadResponseOnly;
    node.qp.HandleTransmitFault(node.host, 0, packet);
    QpDebug debug;
    node.qp.Describe(node.now, debug);
    EXPECT_EQ(node.qp.state(), state);
  }
}

}  // namespace
}  // namespace roci::roce
