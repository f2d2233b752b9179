// XRC: the receiving queue pair uses the shared receive queue that each request names.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kFirst = 0x111;
constexpr uint32_t kSecond = 0x222;

class QpXrc : public testing::Test {
 protected:
  QpXrc() : node_(Options()) {
    node_.host.shared_queues[kFirst];
    node_.host.shared_queues[kSecond];
  }
  static NodeOptions Options() {
    NodeOptions options;
    options.type = QpType::kXrcRecv;
    options.uses_srq = true;
    return options;
  }
  void Post(uint32_t number, uint64_t wr_id) {
    RecvWqe& wqe = node_.host.PostRecv(4 * kMtu);
    wqe.wr_id = wr_id;
    node_.host.shared_queues[number].push_back(wqe);
    node_.host.receives.clear();
  }
  DropReason Send(Opcode opcode, uint32_t psn, uint32_t bytes, uint32_t number) {
    WirePacket packet = MakeRequest(opcode, kRqPsn + psn, bytes);
    packet.tx.ext.xrc.srq_number = number;
    return node_.Receive(packet);
  }
  void ExpectNak(NakCode code) {
    const auto answers = node_.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].tx.opcode, Opcode::kXrcAcknowledge);
    EXPECT_EQ(answers[0].tx.ext.aeth.nak_code(), code);
    EXPECT_EQ(node_.qp.state(), QpState::kErr);
  }
  Node node_;
};

TEST_F(QpXrc, EachMessageGoesToTheQueueThatItNames) {
  Post(kFirst, 1);
  Post(kSecond, 2);
  Post(kFirst, 3);
  EXPECT_EQ(Send(Opcode::kXrcSendOnly, 0, 8, kSecond), DropReason::kNone);
  EXPECT_EQ(Send(Opcode::kXrcSendFirst, 1, kMtu, kFirst), DropReason::kNone);
  EXPECT_EQ(Send(Opcode::kXrcSendLast, 2, 8, kFirst), DropReason::kNone);
  EXPECT_EQ(Send(Opcode::kXrcSendOnly, 3, 8, kFirst), DropReason::kNone);
  ASSERT_EQ(node_.host.recv_completions.size(), 3u);
  EXPECT_EQ(node_.host.recv_completions[0].wr_id, 2u);
  EXPECT_EQ(node_.host.recv_completions[1].wr_id, 1u);
  EXPECT_EQ(node_.host.recv_completions[2].wr_id, 3u);
  EXPECT_EQ(node_.host.completed_queues, (std::vector<uint32_t>{kSecond, kFirst, kFirst}));
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.opcode, Opcode::kXrcAcknowledge);
}

TEST_F(QpXrc, EmptyQueueIsNotReadyThoughAnotherIsNot) {
  Post(kFirst, 1);
  EXPECT_EQ(Send(Opcode::kXrcSendOnly, 0, 8, kSecond), DropReason::kNoReceiveBuffer);
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.ext.aeth.kind(), AethKind::kRnrNak);
  EXPECT_EQ(node_.qp.state(), QpState::kRts);
}

TEST_F(QpXrc, UnknownNumberIsAnInvalidRequest) {
  EXPECT_EQ(Send(Opcode::kXrcSendOnly, 0, 8, 0x333), DropReason::kReceiveQueue);
  ExpectNak(NakCode::kInvalidRequest);
}

TEST_F(QpXrc, NumberMustNotChangeInAMessage) {
  Post(kFirst, 1);
  Post(kSecond, 2);
  EXPECT_EQ(Send(Opcode::kXrcSendFirst, 0, kMtu, kFirst), DropReason::kNone);
  EXPECT_EQ(Send(Opcode::kXrcSendLast, 1, 8, kSecond), DropReason::kReceiveQueue);
  ExpectNak(NakCode::kInvalidRequest);
  ASSERT_EQ(node_.host.recv_completions.size(), 1u);
  EXPECT_EQ(node_.host.recv_completions[0].status, CompletionStatus::kRemoteInvalidRequest);
  EXPECT_EQ(node_.host.completed_queues[0], kFirst);
}

TEST_F(QpXrc, FlushedReceiveBelongsToItsQueue) {
  Post(kFirst, 1);
  EXPECT_EQ(Send(Opcode::kXrcSendFirst, 0, kMtu, kFirst), DropReason::kNone);
  ASSERT_NE(node_.qp.held_receive(), nullptr);
  EXPECT_EQ(node_.qp.receive_queue_number(), kFirst);
  node_.host.selected_queue = kSecond;  // as after the response to an older READ
  EXPECT_EQ(node_.Modify(QpState::kErr), ModifyResult::kOk);
  ASSERT_EQ(node_.host.recv_completions.size(), 1u);
  EXPECT_EQ(node_.host.recv_completions[0].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node_.host.completed_queues[0], kFirst);
  EXPECT_EQ(node_.host.events.back(), QpEvent::kLastWqeReached);
}

TEST_F(QpXrc, ForgottenQueueTakesItsReceiveAlong) {
  Post(kFirst, 1);
  EXPECT_EQ(Send(Opcode::kXrcSendFirst, 0, kMtu, kFirst), DropReason::kNone);
  node_.host.shared_queues.erase(kFirst);
  node_.qp.ForgetReceiveQueue(kFirst);
  EXPECT_EQ(node_.qp.held_receive(), nullptr);
  EXPECT_EQ(Send(Opcode::kXrcSendLast, 1, 8, kFirst), DropReason::kReceiveQueue);
  ExpectNak(NakCode::kInvalidRequest);
  EXPECT_TRUE(node_.host.recv_completions.empty());
}

TEST_F(QpXrc, ReadIsAnsweredWithTheMemoryOfItsQueue) {
  WirePacket read = MakeReadRequest(kRqPsn, kMtu);
  read.tx.opcode = Opcode::kXrcReadRequest;
  read.tx.ext.xrc.srq_number = kSecond;
  EXPECT_EQ(node_.Receive(read), DropReason::kNone);
  node_.host.selected_queue = kFirst;
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.opcode, Opcode::kXrcReadResponseOnly);
  EXPECT_EQ(node_.host.selected_queue, kSecond);
}

}  // namespace
}  // namespace roci::roce
