// Binds and local invalidates in a send queue, ATOMIC WRITE and FLUSH on both sides.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

std::vector<uint64_t> Completed(const Node& node) {
  std::vector<uint64_t> wr_ids;
  for (const Completion& c : node.host.send_completions) wr_ids.push_back(c.wr_id);
  return wr_ids;
}

// Checks the response to the FLUSH or ATOMIC WRITE with `psn`.
void ExpectConfirmation(const std::vector<WirePacket>& packets, Psn psn, Msn msn) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, msn);
  EXPECT_TRUE(packets[0].payload.empty());
}

void ExpectNak(const std::vector<WirePacket>& packets, Psn psn, NakCode code) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[0].tx.ext.aeth.nak_code(), code);
}

// ---- Binds and local invalidates

TEST(QpWindows, BindCompletesAtOnceWhereNothingWaits) {
  Node node;
  node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn) << "a bind takes no PSN";
  ASSERT_EQ(Completed(node), (std::vector<uint64_t>{1000}));
  EXPECT_EQ(node.host.send_completions[0].opcode, CompletionOpcode::kBindMw);
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001}));
}

TEST(QpWindows, BindIsDoneInItsPlaceAndCompletesInItsTurn) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.host.PostSend(WorkOpcode::kBindMw, 0).signaled = false;
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 2u);
  EXPECT_EQ(node.host.bound.size(), 2u) << "waits for nothing";
  EXPECT_TRUE(node.host.send_completions.empty());
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001, 1002}));
  EXPECT_FALSE(node.host.send_completions[2].signaled);
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001, 1002, 1003}));
}

TEST(QpWindows, FencedBindWaitsForReads) {
  Node node;
  node.host.PostSend(WorkOpcode::kRdmaRead, 8);
  node.host.PostSend(WorkOpcode::kBindMw, 0).fence = true;
  EXPECT_EQ(node.Run().size(), 1u);
  EXPECT_TRUE(node.host.bound.empty());
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  EXPECT_TRUE(node.PollAll().empty());
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001}));
}

TEST(QpWindows, LocalInvalidateWaitsForEverythingBeforeIt) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kLocalInvalidate, 0).invalidate_key = 0x77;
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1u);
  EXPECT_TRUE(node.host.invalidated.empty());
  node.Receive(MakeAck(kSqPsn));
  const auto packets = node.PollAll();
  EXPECT_EQ(node.host.invalidated, std::vector{Key(0x77)});
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 1);
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001}));
  EXPECT_EQ(node.host.send_completions[1].opcode, CompletionOpcode::kLocalInvalidate);
}

TEST(QpWindows, RetransmissionDoesNotBindAgain) {
  for (const uint32_t lost : {0u, 1u}) {
    Node node;
    node.host.PostSend(WorkOpcode::kSend, 8);
    node.host.PostSend(WorkOpcode::kBindMw, 0);
    node.host.PostSend(WorkOpcode::kSend, 8);
    ASSERT_EQ(node.Run().size(), 2u);
    if (lost == 1) node.Receive(MakeAck(kSqPsn));
    ASSERT_TRUE(node.PassTimeout());
    EXPECT_EQ(node.PollAll().size(), 2u - lost);
    EXPECT_EQ(node.host.bound.size(), 1u);
    node.Receive(MakeAck(kSqPsn + 1));
    EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001, 1002}));
  }
}

// The ACK arrives after the SEND was retransmitted and before the retransmission reaches the bind.
TEST(QpWindows, AckBetweenRetransmissionAndBind) {
  NodeOptions options;
  options.limits.window_packets = 2;
  Node node(options);
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.host.PostSend(WorkOpcode::kSend, 8);
  ASSERT_EQ(node.Run().size(), 2u);
  ASSERT_TRUE(node.PassTimeout());
  ASSERT_TRUE(node.Poll().has_value());
  node.Receive(MakeAck(kSqPsn));
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001}));
  const auto packets = node.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 1);
  node.Receive(MakeAck(kSqPsn + 1));
  EXPECT_EQ(node.host.bound.size(), 1u);
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001, 1002}));
}

TEST(QpWindows, FailedBindEndsTheQueue) {
  Node node;
  node.host.bind_fails = true;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kBindMw, 0).signaled = false;
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1u) << "nothing behind it is sent";
  EXPECT_TRUE(node.host.send_completions.empty());
  node.Receive(MakeAck(kSqPsn));
  ASSERT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kMwBindError);
  EXPECT_TRUE(node.host.send_completions[1].signaled);
  EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kWorkRequestFlushed);
  EXPECT_EQ(node.qp.state(), QpState::kErr);
}

TEST(QpWindows, FatalNakBehindABindLeavesItDone) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.host.PostSend(WorkOpcode::kSend, 8);
  ASSERT_EQ(node.Run().size(), 2u);
  node.Receive(MakeNak(kSqPsn + 1, NakCode::kRemoteAccessError));
  ASSERT_EQ(node.host.send_completions.size(), 3u);
  EXPECT_EQ(node.host.send_completions[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(node.host.send_completions[2].status, CompletionStatus::kRemoteAccessError);
}

TEST(QpWindows, ManyBindsDoNotFillTheRing) {
  Node node;
  for (int i = 0; i < 1000; ++i) node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.Work();
  while (node.qp.HasTransmit()) EXPECT_FALSE(node.Poll().has_value());
  EXPECT_EQ(node.host.send_completions.size(), 1000u);
}

TEST(QpWindows, OneRegistrationAVisit) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    NodeOptions options;
    options.type = type;
    Node node(options);
    node.host.PostSend(WorkOpcode::kRegisterList, 0);
    node.host.PostSend(WorkOpcode::kRegisterList, 0);
    node.host.PostSend(WorkOpcode::kSend, 8);
    node.Work();
    for (uint32_t visit = 1; visit <= 2; ++visit) {
      EXPECT_FALSE(node.Poll().has_value());
      EXPECT_EQ(node.host.bound.size(), visit);
      EXPECT_TRUE(node.qp.HasTransmit()) << "comes again by itself";
    }
    EXPECT_TRUE(node.Poll().has_value());
    EXPECT_EQ(node.host.bound.size(), 2u);
  }
}

TEST(QpWindows, UnreliableConnectionsBindToo) {
  NodeOptions options;
  options.type = QpType::kUc;
  Node node(options);
  node.host.PostSend(WorkOpcode::kBindMw, 0);
  node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(node.Run().size(), 1u);
  EXPECT_EQ(Completed(node), (std::vector<uint64_t>{1000, 1001}));
}

// ---- ATOMIC WRITE and FLUSH, requester

TEST(QpConfirmed, AtomicWriteWaitsForItsResponse) {
  Node node;
  node.host.SetWord(ScriptedHost::kMemoryVa, 0x1122334455667788);
  node.host.PostSend(WorkOpcode::kAtomicWrite, 8, 0, 64);
  node.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcAtomicWrite);
  EXPECT_EQ(packets[0].tx.ext.reth.va, ScriptedHost::kMemoryVa + 64);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 8u);
  EXPECT_EQ(packets[0].payload.size(), 8u);
  node.Receive(MakeAck(kSqPsn + 1));  // implies that the response was lost
  EXPECT_TRUE(node.host.send_completions.empty());
  EXPECT_EQ(node.PollAll().size(), 2u) << "sent again";
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 0));
  node.Receive(MakeAck(kSqPsn + 1));
  ASSERT_EQ(node.host.send_completions.size(), 2u);
  EXPECT_EQ(node.host.send_completions[0].opcode, CompletionOpcode::kAtomicWrite);
}

TEST(QpConfirmed, FlushNamesTypeAndLevel) {
  Node node;
  node.host.PostSend(WorkOpcode::kFlush, 4096, 0, 64).flush = {Feth::kGlobalVisibility,
                                                               Feth::kWholeRegion};
  const auto packets = node.Run();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcFlush);
  EXPECT_EQ(packets[0].tx.ext.feth.placement_type, Feth::kGlobalVisibility);
  EXPECT_EQ(packets[0].tx.ext.feth.selectivity_level, Feth::kWholeRegion);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 4096u);
  EXPECT_TRUE(packets[0].payload.empty());
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 0));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].opcode, CompletionOpcode::kFlush);
}

TEST(QpConfirmed, CountsAmongReadsAndAtomics) {
  NodeOptions options;
  options.max_rd_atomic = 1;
  Node node(options);
  node.host.PostSend(WorkOpcode::kAtomicWrite, 8);
  node.host.PostSend(WorkOpcode::kFlush, 8);
  EXPECT_EQ(node.Run().size(), 1u);
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 0));
  EXPECT_EQ(node.PollAll().size(), 1u);
}

TEST(QpConfirmed, ResponseWithBytesIsBad) {
  Node node;
  node.host.PostSend(WorkOpcode::kAtomicWrite, 8);
  node.Run();
  node.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, 8));
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kBadResponse);
}

// ---- ATOMIC WRITE and FLUSH, responder

NodeOptions WithFlush() {
  NodeOptions options;
  options.access_flags |= kQpAccessFlushGlobal;
  return options;
}

void GrantFlush(Node& node) {
  auto& grant = node.host.grants[ScriptedHost::kRkey.value()];
  grant.access = grant.access | memory::Access::kFlushGlobal;
}

TEST(QpConfirmed, AtomicWriteIsExecutedOnceAndAnsweredAgain) {
  Node node;
  const WirePacket write = MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8, 64);
  EXPECT_EQ(node.Receive(write), DropReason::kNone);
  ExpectConfirmation(node.PollAll(), kRqPsn, Msn(1));
  const uint64_t written = node.host.Word(ScriptedHost::kMemoryVa + 64);
  EXPECT_NE(written, 0u);
  node.host.SetWord(ScriptedHost::kMemoryVa + 64, 5);
  EXPECT_EQ(node.Receive(write), DropReason::kNone);
  ExpectConfirmation(node.PollAll(), kRqPsn, Msn(1));
  EXPECT_EQ(node.host.Word(ScriptedHost::kMemoryVa + 64), 5u);
  EXPECT_EQ(node.host.count(QpCounter::kDuplicateRequest), 1u);
}

TEST(QpConfirmed, AtomicWriteFaults) {
  {
    Node node;
    node.Receive(MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8, 4));
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kInvalidRequest);
  }
  {
    Node node;
    node.host.atomic_faults = true;
    node.Receive(MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8));
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteOperationalError);
  }
  {
    Node node;
    node.host.grants.clear();
    node.Receive(MakeWrite(Opcode::kRcAtomicWrite, kRqPsn, 8, 8));
    ExpectNak(node.PollAll(), kRqPsn, NakCode::kRemoteAccessError);
  }
}

TEST(QpConfirmed, FlushCoversEarlierWrites) {
  Node node(WithFlush());
  GrantFlush(node);
  node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node.Receive(MakeFlush(kRqPsn + 1, Feth::kGlobalVisibility, 0, 8));
  ExpectConfirmation(node.PollAll(), kRqPsn + 1, Msn(2));
  node.Receive(MakeFlush(kRqPsn + 1, Feth::kGlobalVisibility, 0, 8));  // duplicate
  ExpectConfirmation(node.PollAll(), kRqPsn + 1, Msn(2));
  node.Receive(MakeFlush(kRqPsn + 2, Feth::kGlobalVisibility, Feth::kWholeRegion, 0));
  ExpectConfirmation(node.PollAll(), kRqPsn + 2, Msn(3));
}

TEST(QpConfirmed, FlushFaults) {
  const struct {
    const char* what;
    bool qp_allows;
    bool region_allows;
    uint8_t type, level;
    uint32_t length;
    NakCode code;
  } kCases[] = {
      {"queue pair forbids", false, true, 1, 0, 8, NakCode::kInvalidRequest},
      {"no type", true, true, 0, 0, 8, NakCode::kInvalidRequest},
      {"unknown type", true, true, 4, 0, 8, NakCode::kInvalidRequest},
      {"persistence is not allowed", true, true, 3, 0, 8, NakCode::kInvalidRequest},
      {"unknown level", true, true, 1, 2, 8, NakCode::kInvalidRequest},
      {"region forbids", true, false, 1, 0, 8, NakCode::kRemoteAccessError},
      {"region forbids, whole", true, false, 1, 1, 0, NakCode::kRemoteAccessError},
      {"too long", true, true, 1, 0, 1u << 30, NakCode::kRemoteAccessError},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Node node(c.qp_allows ? WithFlush() : NodeOptions{});
    if (c.region_allows) GrantFlush(node);
    node.Receive(MakeFlush(kRqPsn, c.type, c.level, c.length));
    ExpectNak(node.PollAll(), kRqPsn, c.code);
  }
}

}  // namespace
}  // namespace roci::roce
