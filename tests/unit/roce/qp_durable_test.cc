// FLUSH for persistence: the response waits for the host's sync; responses stay in order.
#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint8_t kPersistence = Feth::kPersistence;
constexpr uint8_t kBoth = Feth::kPersistence | Feth::kGlobalVisibility;

NodeOptions Options(QpType type) {
  NodeOptions options;
  options.type = type;
  options.uses_srq = type == QpType::kXrcRecv;
  options.access_flags |= kQpAccessFlushGlobal | kQpAccessFlushPersistent;
  return options;
}

class QpDurable : public testing::Test {
 protected:
  explicit QpDurable(QpType type = QpType::kRc) : node_(Options(type)) {
    auto& grant = node_.host.grants[ScriptedHost::kRkey.value()];
    grant.access = grant.access | memory::Access::kFlushGlobal | memory::Access::kFlushPersistent;
  }

  size_t syncs() const { return node_.host.durable_requests.size(); }
  // The host reports a sync in `state`. Returns the packets that the queue pair then sends.
  std::vector<WirePacket> End(DurableState state) {
    node_.host.durable = state;
    node_.qp.NoteDurable();
    return node_.PollAll();
  }
  static std::vector<Psn> Psns(const std::vector<WirePacket>& packets) {
    std::vector<Psn> psns;
    for (const WirePacket& packet : packets) psns.push_back(packet.tx.psn);
    return psns;
  }
  void ExpectFailure(const std::vector<WirePacket>& packets, Psn psn, NakCode code) {
    ASSERT_EQ(packets.size(), 1u);
    EXPECT_EQ(packets[0].tx.psn, psn);
    EXPECT_EQ(packets[0].tx.ext.aeth.nak_code(), code);
    EXPECT_EQ(node_.qp.state(), QpState::kErr);
    EXPECT_FALSE(node_.qp.HasTransmit());
  }

  Node node_;
};

TEST_F(QpDurable, AnswerWaitsForTheSync) {
  node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node_.Receive(MakeFlush(kRqPsn + 1, kBoth, 0, 100, 64));
  EXPECT_TRUE(node_.PollAll().empty());
  ASSERT_EQ(syncs(), 1u);
  EXPECT_EQ(node_.host.durable_requests[0].rkey, ScriptedHost::kRkey);
  EXPECT_EQ(node_.host.durable_requests[0].va, ScriptedHost::kMemoryVa + 64);
  EXPECT_EQ(node_.host.durable_requests[0].length, 100u);
  EXPECT_FALSE(node_.host.durable_requests[0].whole_region);
  EXPECT_FALSE(node_.qp.HasTransmit()) << "nobody needs to look again";
  EXPECT_TRUE(End(DurableState::kRunning).empty()) << "told too early";
  const auto packets = End(DurableState::kDone);
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn + 1);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, Msn(2));
  EXPECT_TRUE(packets[0].payload.empty());
  EXPECT_EQ(syncs(), 1u);
}

TEST_F(QpDurable, WholeRegionsAndRangesOfNoBytes) {
  node_.host.durable_start = DurableState::kDone;
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 0));
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(syncs(), 0u);
  node_.Receive(MakeFlush(kRqPsn + 1, kPersistence, Feth::kWholeRegion, 0));
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn + 1}));
  ASSERT_EQ(syncs(), 1u);
  EXPECT_TRUE(node_.host.durable_requests[0].whole_region);
}

TEST_F(QpDurable, DuplicatesStartNoSync) {
  const WirePacket flush = MakeFlush(kRqPsn, kPersistence, 0, 8);
  node_.Receive(flush);
  EXPECT_TRUE(node_.PollAll().empty());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(node_.Receive(flush), DropReason::kNone);
    EXPECT_TRUE(node_.PollAll().empty());
  }
  EXPECT_EQ(End(DurableState::kDone).size(), 1u);
  // A duplicate after the sync is answered without another sync.
  node_.Receive(flush);
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(syncs(), 1u);
}

TEST_F(QpDurable, AnswersStayInOrder) {
  node_.Receive(MakeReadRequest(kRqPsn, 8));
  node_.Receive(MakeFlush(kRqPsn + 1, kPersistence, 0, 8));
  node_.Receive(MakeReadRequest(kRqPsn + 2, 8));
  node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 8));
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(Psns(End(DurableState::kDone)), (std::vector<Psn>{kRqPsn + 1, kRqPsn + 2, kRqPsn + 3}));
}

TEST_F(QpDurable, TwoFlushesAreSyncedInTurn) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  node_.Receive(MakeFlush(kRqPsn + 1, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(syncs(), 1u);
  node_.host.durable = DurableState::kDone;
  node_.qp.NoteDurable();
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(syncs(), 2u);
  EXPECT_EQ(Psns(End(DurableState::kDone)), (std::vector<Psn>{kRqPsn + 1}));
}

// A program may use an atomic after the FLUSH to signal that the bytes are durable, so the atomic
// must not execute before they are.
TEST_F(QpDurable, AtomicsWaitForTheSync) {
  const WirePacket atomic = MakeFetchAdd(kRqPsn + 2, 5, 16);
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 1, 8, 8));
  const auto written = node_.host.bytes;
  EXPECT_EQ(node_.Receive(atomic), DropReason::kBehindFlush);
  EXPECT_EQ(node_.Receive(atomic), DropReason::kBehindFlush);
  EXPECT_EQ(node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 3, 8, 32)),
            DropReason::kOutOfSequence);
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_FALSE(node_.qp.HasTransmit());
  EXPECT_EQ(node_.host.bytes, written);
  const auto packets = End(DurableState::kDone);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(packets[0].tx.psn, kRqPsn);
  EXPECT_EQ(packets[1].tx.psn, kRqPsn + 2);
  EXPECT_EQ(packets[1].tx.ext.aeth.nak_code(), NakCode::kPsnSequenceError);
  EXPECT_EQ(node_.Receive(atomic), DropReason::kNone);
  EXPECT_NE(node_.host.bytes, written);
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn + 2}));
}

TEST_F(QpDurable, AnAtomicBehindAFlushThatFailsIsNotExecuted) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  const auto before = node_.host.bytes;
  EXPECT_EQ(node_.Receive(MakeFetchAdd(kRqPsn + 1, 5, 16)), DropReason::kBehindFlush);
  EXPECT_TRUE(node_.PollAll().empty());
  ExpectFailure(End(DurableState::kFailed), kRqPsn, NakCode::kRemoteOperationalError);
  EXPECT_EQ(node_.host.bytes, before);
}

TEST_F(QpDurable, RequestsAreSentDuringASync) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  node_.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(Psns(node_.Run()), (std::vector<Psn>{kSqPsn}));
  EXPECT_EQ(syncs(), 1u);
}

TEST_F(QpDurable, BusyIsTriedAgainWhenToldSo) {
  node_.host.durable_start = DurableState::kBusy;
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(syncs(), 1u);
  node_.host.durable_start = DurableState::kRunning;
  EXPECT_TRUE(End(DurableState::kRunning).empty());
  EXPECT_EQ(syncs(), 2u);
  EXPECT_EQ(End(DurableState::kDone).size(), 1u);
}

TEST_F(QpDurable, SyncThatFoundNoRoomIsStartedAgain) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(syncs(), 1u);
  EXPECT_TRUE(End(DurableState::kBusy).empty());
  EXPECT_EQ(syncs(), 2u);
  EXPECT_EQ(node_.host.durable_requests[1].length, 8u);
  EXPECT_TRUE(End(DurableState::kRunning).empty());
  EXPECT_EQ(syncs(), 2u);
  EXPECT_EQ(End(DurableState::kDone).size(), 1u);
}

TEST_F(QpDurable, ReadBeforeIsAnsweredAgainMeanwhile) {
  node_.Receive(MakeReadRequest(kRqPsn, 8));
  node_.Receive(MakeFlush(kRqPsn + 1, kPersistence, 0, 8));
  EXPECT_EQ(node_.PollAll().size(), 1u);
  node_.Receive(MakeReadRequest(kRqPsn, 8));
  EXPECT_TRUE(node_.qp.HasTransmit());
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(Psns(End(DurableState::kDone)), (std::vector<Psn>{kRqPsn + 1}));
  EXPECT_EQ(syncs(), 1u);
}

TEST_F(QpDurable, NakOfSomethingBeforeNeedNotWait) {
  node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  node_.Receive(MakeFlush(kRqPsn + 1, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  PlaceFault fault{};
  fault.of_request = true;
  fault.psn = kRqPsn;
  node_.qp.HandlePlaceFault(node_.host, fault);
  ExpectFailure(node_.PollAll(), kRqPsn, NakCode::kRemoteOperationalError);
  EXPECT_TRUE(End(DurableState::kDone).empty());
}

TEST_F(QpDurable, NakOfSomethingBehindWaits) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  node_.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn + 2, 8, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(Psns(End(DurableState::kDone)), (std::vector<Psn>{kRqPsn, kRqPsn + 1}));
}

TEST_F(QpDurable, AFlushThatCannotBeSyncedIsAnError) {
  const struct {
    DurableState start, end;
    NakCode code;
  } kCases[] = {
      {DurableState::kRunning, DurableState::kFailed, NakCode::kRemoteOperationalError},
      {DurableState::kFailed, DurableState::kFailed, NakCode::kRemoteOperationalError},
      {DurableState::kNoAccess, DurableState::kFailed, NakCode::kRemoteAccessError},
  };
  for (const auto& c : kCases) {
    node_.Modify(QpState::kReset);
    node_.BringTo(QpState::kRts);
    node_.host.durable_start = c.start;
    node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
    auto packets = node_.PollAll();
    if (c.start == DurableState::kRunning) {
      EXPECT_TRUE(packets.empty());
      packets = End(c.end);
    }
    ExpectFailure(packets, kRqPsn, c.code);
  }
}

TEST_F(QpDurable, ResetForgetsIt) {
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  EXPECT_TRUE(node_.PollAll().empty());
  node_.Modify(QpState::kReset);
  EXPECT_FALSE(node_.qp.waits_for_durable());
  EXPECT_TRUE(End(DurableState::kDone).empty());
  node_.BringTo(QpState::kRts);
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 16));
  EXPECT_TRUE(node_.PollAll().empty());
  ASSERT_EQ(syncs(), 2u);
  EXPECT_EQ(node_.host.durable_requests[1].length, 16u);
}

TEST_F(QpDurable, QueuePairOrRegionMayForbidIt) {
  auto& grant = node_.host.grants[ScriptedHost::kRkey.value()];
  grant.access = grant.access & ~memory::Access::kFlushPersistent;
  node_.Receive(MakeFlush(kRqPsn, kPersistence, 0, 8));
  ExpectFailure(node_.PollAll(), kRqPsn, NakCode::kRemoteAccessError);
  EXPECT_EQ(syncs(), 0u);
}

class QpDurableXrc : public QpDurable {
 protected:
  QpDurableXrc() : QpDurable(QpType::kXrcRecv) {
    node_.host.shared_queues[0x111];
    node_.host.shared_queues[0x222];
  }
  void Flush(Psn psn, uint32_t number) {
    WirePacket flush = MakeFlush(psn, kPersistence, 0, 8);
    flush.tx.opcode = Opcode::kXrcFlush;
    flush.tx.ext.xrc.srq_number = number;
    node_.Receive(flush);
  }
};

TEST_F(QpDurableXrc, WorksWithTheQueueThatItNames) {
  Flush(kRqPsn, 0x111);
  Flush(kRqPsn + 1, 0x222);
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(node_.host.durable_requests.at(0).queue, 0x111u);
  node_.host.durable = DurableState::kDone;
  node_.qp.NoteDurable();
  EXPECT_EQ(Psns(node_.PollAll()), (std::vector<Psn>{kRqPsn}));
  EXPECT_EQ(node_.host.durable_requests.at(1).queue, 0x222u);
}

TEST_F(QpDurableXrc, SharedReceiveQueueMayBeDestroyed) {
  Flush(kRqPsn, 0x111);
  Flush(kRqPsn + 1, 0x222);
  node_.host.shared_queues.erase(0x111);
  const auto packets = node_.PollAll();
  ExpectFailure(packets, kRqPsn, NakCode::kInvalidRequest);
}

}  // namespace
}  // namespace roci::roce
