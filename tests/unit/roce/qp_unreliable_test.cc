// UC and UD: no acknowledgements, no retransmissions.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;
constexpr uint32_t kQkey = 0x11111111;

NodeOptions Uc() {
  NodeOptions options;
  options.type = QpType::kUc;
  return options;
}

NodeOptions Ud() {
  NodeOptions options;
  options.type = QpType::kUd;
  options.limits.max_path_mtu = PathMtu::k1024;
  options.qkey = kQkey;
  return options;
}

// ---- UC ----

TEST(QpUc, SendsWithoutAsking) {
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSendWithImm, 2 * kMtu + 1).immediate = SwapNetworkOrder(3);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 4u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kUcSendFirst);
  EXPECT_EQ(packets[2].tx.opcode, Opcode::kUcSendLastImm);
  EXPECT_EQ(packets[3].tx.opcode, Opcode::kUcWriteOnly);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(packets[i].tx.ack_request);
    EXPECT_EQ(packets[i].tx.psn, kSqPsn + i);
  }
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.qp.NextTimeout(), kNever);
  EXPECT_FALSE(node.qp.HasTransmit());
}

TEST(QpUc, WindowDoesNotBound) {
  NodeOptions options = Uc();
  options.limits.window_packets = 2;
  Node node(options);
  node.host.PostSend(WorkOpcode::kRdmaWrite, 10 * kMtu);
  EXPECT_EQ(node.Run().size(), 10u);
}

TEST(QpUc, SendErrorStopsTheSendQueueOnly) {
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kSend, 8).first_sge.lkey = Key(0xBAD);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1u);
  ASSERT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.qp.state(), QpState::kSqe);
  // In SQE the QP still receives, and flushes new send requests.
  node.host.PostRecv(100);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn, 8)), DropReason::kNone);
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_TRUE(node.Run().empty());
  EXPECT_EQ(node.host.send_completions.back().status, CompletionStatus::kWorkRequestFlushed);
  // Back in RTS, it continues with the next PSN on the wire.
  EXPECT_EQ(node.Modify(QpState::kRts), ModifyResult::kOk);
  node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 1);
}

TEST(QpUc, LeavesSendErrorInParts) {
  constexpr uint32_t kRequests = 10 * kFlushBudget;
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSend, 8).first_sge.lkey = Key(0xBAD);
  node.Work();
  node.PollAll();
  ASSERT_EQ(node.qp.state(), QpState::kSqe);
  node.host.send_completions.clear();
  // Their doorbell is not seen before the change.
  for (uint32_t i = 0; i < kRequests; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
  uint32_t calls = 0;
  for (size_t flushed = 0; node.Modify(QpState::kRts) == ModifyResult::kMustFlush; ++calls) {
    EXPECT_EQ(node.host.send_completions.size() - flushed, kFlushBudget) << calls;
    EXPECT_EQ(node.qp.state(), QpState::kSqe);
    flushed = node.host.send_completions.size();
  }
  EXPECT_EQ(calls, 10U);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
  EXPECT_EQ(node.host.send_completions.size(), kRequests);
  EXPECT_TRUE(node.Run().empty()) << "a request posted in SQE is sent";
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1U);
}

// A program that posts without end while it changes the state.
TEST(QpUc, LeavesSendErrorOfAProgramThatKeepsPosting) {
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSend, 8).first_sge.lkey = Key(0xBAD);
  node.Work();
  node.PollAll();
  uint32_t calls = 0;
  do {
    for (uint32_t i = 0; i < kFlushBudget; ++i) node.host.PostSend(WorkOpcode::kSend, 8);
    ASSERT_LE(++calls, kFlushCalls + 1);
  } while (node.Modify(QpState::kRts) == ModifyResult::kMustFlush);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpUc, PayloadThatCannotBeReadFailsItsRequest) {
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Work();
  const auto first = node.Poll();
  const auto second = node.Poll();
  node.qp.HandleTransmitFault(node.host, node.now, second->tx);
  EXPECT_TRUE(node.PollAll().empty());
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kLocalProtectionError);
  EXPECT_EQ(node.qp.state(), QpState::kSqe);
}

TEST(QpUc, DrainReportsWhatWasSent) {
  Node node(Uc());
  node.host.PostSend(WorkOpcode::kSend, 2 * kMtu);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Work();
  node.Poll();
  node.attributes.en_sqd_async_notify = true;
  node.Modify(QpState::kSqd, kAttrSqdNotify);
  EXPECT_EQ(node.PollAll().size(), 1u);
  EXPECT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.events, std::vector{QpEvent::kSendQueueDrained});
}

TEST(QpUc, ReceivesSendAndWrite) {
  Node node(Uc());
  node.host.PostRecv(1000);
  node.host.PostRecv(0);
  node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn, kMtu));
  node.Receive(MakeRequest(Opcode::kUcSendLast, kRqPsn + 1, 5));
  WirePacket write = MakeWrite(Opcode::kUcWriteOnlyImm, kRqPsn + 2, 8, 8, 4096);
  write.tx.ext.imm.value = 9;
  node.Receive(write);
  ASSERT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, kMtu + 5);
  EXPECT_EQ(node.host.recv_completions[1].immediate, SwapNetworkOrder(9));
  EXPECT_EQ(node.host.bytes[4096 + 3], PayloadByte(3));
  EXPECT_TRUE(node.PollAll().empty());  // UC sends no responses
}

TEST(QpUc, LostPacketCostsItsMessageAndNoReceive) {
  Node node(Uc());
  node.host.PostRecv(1000);
  node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn, kMtu));
  // The middle packet, kRqPsn + 1, is lost.
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendMiddle, kRqPsn + 2, kMtu)),
            DropReason::kOutOfSequence);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendLast, kRqPsn + 3, 5)),
            DropReason::kOutOfSequence);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn + 4, 7)), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].wr_id, 2000u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 7u);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpUc, LostLastPacketIsNoticedAtTheNextFirst) {
  Node node(Uc());
  node.host.PostRecv(1000);
  node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn, kMtu));
  node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn + 2, kMtu));
  node.Receive(MakeRequest(Opcode::kUcSendLast, kRqPsn + 3, 3));
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, kMtu + 3);
}

TEST(QpUc, AnyFirstPacketBeginsAnew) {
  Node node(Uc());
  node.host.PostRecv(1000);
  node.host.PostRecv(1000);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn + 5000, 7)), DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn + 5001, 7)), DropReason::kNone);
  EXPECT_EQ(node.host.recv_completions.size(), 2u);
}

TEST(QpUc, FaultsOfThePeerAreDroppedInSilence) {
  const WirePacket cases[] = {
      MakeWrite(Opcode::kUcWriteOnly, kRqPsn, 8, 8, 1 << 20),
      MakeWrite(Opcode::kUcWriteOnly, kRqPsn, 8, 9),
      MakeWrite(Opcode::kUcWriteFirst, kRqPsn, 8, 900),
      MakeRequest(Opcode::kUcSendMiddle, kRqPsn, kMtu),
      MakeRequest(Opcode::kUcSendOnly, kRqPsn, 8),  // no receive is posted
  };
  for (const WirePacket& packet : cases) {
    Node node(Uc());
    EXPECT_NE(node.Receive(packet), DropReason::kNone);
    EXPECT_TRUE(node.PollAll().empty());
    EXPECT_EQ(node.qp.state(), QpState::kRts);
    EXPECT_TRUE(node.host.events.empty());
    node.host.PostRecv(8);
    EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn + 1, 8)), DropReason::kNone);
  }
}

TEST(QpUc, MessageTooLongForItsReceiveLeavesItForTheNext) {
  Node node(Uc());
  node.host.PostRecv(kMtu + 7);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn, kMtu)), DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendLast, kRqPsn + 1, 8)),
            DropReason::kReceiveTooLong);
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(node.qp.state(), QpState::kRts);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendFirst, kRqPsn + 2, kMtu)), DropReason::kNone);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendLast, kRqPsn + 3, 7)), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, kMtu + 7);
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_TRUE(node.host.events.empty());
}

// This QP cannot keep a receive of a shared queue for its next message.
TEST(QpUc, SharedReceiveTooShortCompletesWithTheError) {
  NodeOptions options = Uc();
  options.uses_srq = true;
  Node node(options);
  node.host.PostRecv(7);
  node.host.PostRecv(8);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn, 8)), DropReason::kReceiveTooLong);
  EXPECT_EQ(node.Receive(MakeRequest(Opcode::kUcSendOnly, kRqPsn + 1, 8)), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kLocalLengthError);
  EXPECT_EQ(node.host.recv_completions[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

// ---- UD ----

WirePacket MakeDatagram(uint32_t bytes) {
  WirePacket packet = MakeRequest(Opcode::kUdSendOnly, Psn(1), bytes, false);
  packet.tx.ext.deth = {kQkey, Qpn(0x77)};
  return packet;
}

// A packet whose parsed form points to a network header.
struct Datagram {
  explicit Datagram(const WirePacket& from) : wire(from), packet(wire.View()) {
    for (size_t i = 0; i < sizeof(header); ++i) header[i] = static_cast<std::byte>(0x40 + i);
    packet.network_header = header;
    packet.is_ipv6 = true;
  }
  WirePacket wire;
  std::byte header[40];
  Packet packet;
};

TEST(QpUd, SendCarriesItsDestination) {
  Node node(Ud());
  SendWqe& wqe = node.host.PostSend(WorkOpcode::kSend, 1024);
  wqe.datagram.remote_qkey = 0x1234;
  wqe.datagram.remote_qpn = 0x99;
  wqe.datagram.address_handle = 42;
  SendWqe& own_key = node.host.PostSend(WorkOpcode::kSendWithImm, 0);
  own_key.datagram.remote_qkey = 0x80000000;
  own_key.immediate = SwapNetworkOrder(6);
  node.Work();
  const auto first = node.Poll();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->tx.opcode, Opcode::kUdSendOnly);
  EXPECT_EQ(first->tx.dest_qpn, Qpn(0x99));
  EXPECT_EQ(first->tx.ext.deth.qkey, 0x1234u);
  EXPECT_EQ(first->tx.ext.deth.src_qpn, kLocalQpn);
  EXPECT_EQ(first->payload.size(), 1024u);
  EXPECT_EQ(first->polled.kind, Polled::Kind::kDatagram);
  EXPECT_EQ(first->polled.address_handle, 42u);
  EXPECT_TRUE(first->polled.completes_once_sent);
  const auto second = node.Poll();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->tx.ext.deth.qkey, kQkey);
  EXPECT_EQ(second->tx.ext.imm.value, 6u);
  EXPECT_EQ(second->tx.psn, kSqPsn + 1);
  EXPECT_FALSE(node.Poll().has_value());
  EXPECT_EQ(node.host.send_completions.size(), 2u);
}

TEST(QpUd, MessageAboveThePortsMtuIsALengthError) {
  Node node(Ud());
  node.host.PostSend(WorkOpcode::kSend, 1025);
  EXPECT_TRUE(node.Run().empty());
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kLocalLengthError);
  EXPECT_EQ(node.qp.state(), QpState::kSqe);
}

TEST(QpUd, ReceiveHasRoomForTheNetworkHeader) {
  Node node(Ud());
  node.host.PostRecv(140, 512);
  Datagram datagram(MakeDatagram(100));
  datagram.packet.solicited = true;
  EXPECT_EQ(node.Receive(datagram.packet), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  const Completion& completion = node.host.recv_completions[0];
  EXPECT_EQ(completion.byte_length, 140u);
  EXPECT_EQ(completion.source_qpn, Qpn(0x77));
  EXPECT_TRUE(completion.has_grh);
  EXPECT_EQ(completion.datagram.header, 0x9u);  // an IPv6 header
  EXPECT_TRUE(completion.solicited);
  EXPECT_EQ(node.host.bytes[512 + 39], std::byte{0x40 + 39});
  EXPECT_EQ(node.host.bytes[512 + 40 + 99], PayloadByte(99));
  EXPECT_TRUE(node.PollAll().empty());
}

TEST(QpUd, EmptyDatagram) {
  Node node(Ud());
  node.host.PostRecv(40);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(0)).packet), DropReason::kNone);
  EXPECT_EQ(node.host.recv_completions.at(0).byte_length, 40u);
}

TEST(QpUd, UndeliverableDatagramsAreDroppedWithAReason) {
  Node node(Ud());
  WirePacket wrong_key = MakeDatagram(8);
  wrong_key.tx.ext.deth.qkey = 1;
  EXPECT_EQ(node.Receive(Datagram(wrong_key).packet), DropReason::kQkey);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(1028)).packet), DropReason::kPayloadLength);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(8)).packet), DropReason::kNoReceiveBuffer);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
  EXPECT_TRUE(node.host.events.empty());
}

TEST(QpUd, DatagramTooLongForItsReceiveLeavesItForTheNext) {
  Node node(Ud());
  node.host.PostRecv(47);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(8)).packet), DropReason::kReceiveTooLong);
  EXPECT_TRUE(node.host.recv_completions.empty());
  EXPECT_EQ(node.host.count(QpCounter::kRespLocalLengthErrors), 1u);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(7)).packet), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 1u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.recv_completions[0].byte_length, 47u);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

TEST(QpUd, SharedReceiveTooShortCompletesWithTheError) {
  NodeOptions options = Ud();
  options.uses_srq = true;
  Node node(options);
  node.host.PostRecv(47);
  node.host.PostRecv(48);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(8)).packet), DropReason::kReceiveTooLong);
  EXPECT_EQ(node.Receive(Datagram(MakeDatagram(8)).packet), DropReason::kNone);
  ASSERT_EQ(node.host.recv_completions.size(), 2u);
  EXPECT_EQ(node.host.recv_completions[0].status, CompletionStatus::kLocalLengthError);
  EXPECT_EQ(node.host.recv_completions[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.qp.state(), QpState::kRts);
}

}  // namespace
}  // namespace roci::roce
