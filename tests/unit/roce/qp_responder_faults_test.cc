// The responder of a reliable connection: faults of the peer and of the posted receive.
#include "tests/unit/roce/qp_responder_testing.h"

namespace roci::roce {
namespace {

// ---- Faults of the peer ----

struct FaultCase {
  const char* what;
  std::vector<WirePacket> packets;  // only the last one is faulty
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
      {"flush of no type", {request(Opcode::kRcFlush, 0, 0)}, NakCode::kInvalidRequest, invalid},
      {"atomic write that says 16 bytes",
       {MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 16)},
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
    // The send queue is flushed too, and later requests are dropped.
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
      {kQpAccessRemoteWrite, MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8)},
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
