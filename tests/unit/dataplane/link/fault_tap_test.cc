// Exact faults in a tap: drops, copies and delays, and the queue pairs that they name.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/dataplane/link/fault_rig.h"

namespace roci::testing::faults {
namespace {

TEST_F(FaultTapTest, DropsDuplicatesDelaysAndCuts) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.copies = 2;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2}), (Psns{0, 1, 2, 1, 1}));
  UseNone();
  settings.actions = {};
  settings.actions.delay_ns = 100;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2}), (Psns{0, 2}));
  now_ns_ = 99;
  EXPECT_EQ(Send({}), Psns{});
  now_ns_ = 100;
  EXPECT_EQ(Send({}), Psns{1});
  UseNone();
  settings.actions = {};
  settings.actions.cut_bytes = 5;
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1});
  EXPECT_EQ(last_bytes_, Packet(roce::Opcode::kRcSendOnly, 1).size() - 5);
  UseNone();
  Use(Drop());
  EXPECT_EQ(Send({0, 1, 2}), Psns{});
}

// Packet 1 is overtaken by `packets`.
FaultSettings Overtaken(uint32_t packets) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.overtaken_by = packets;
  return settings;
}

TEST_F(FaultTapTest, ExactlySoManyPacketsOvertake) {
  FaultSettings settings = Overtaken(3);
  settings.match.when.times = 1;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2, 3, 4, 5, 6}), (Psns{0, 2, 3, 4, 1, 5, 6}));
  EXPECT_EQ(Send({7, 8}), (Psns{7, 8}));
}

TEST_F(FaultTapTest, PacketsOvertakeAcrossBursts) {
  Use(Overtaken(3));
  EXPECT_EQ(Send({0, 1}), Psns{0});
  EXPECT_EQ(Send({2, 3}), (Psns{2, 3}));
  EXPECT_EQ(Send({4, 5}), (Psns{4, 1, 5}));
  EXPECT_EQ(Send({6}), Psns{6});
}

TEST_F(FaultTapTest, APacketThatNothingOvertakesGoesOnInTheEnd) {
  Use(Overtaken(3));
  EXPECT_EQ(Send({1, 2}), Psns{2});
  EXPECT_EQ(tap_.next_due(), dataplane::OvertakenFrames::kMostNs);
  now_ns_ = dataplane::OvertakenFrames::kMostNs;
  EXPECT_TRUE(tap_.SendIsDue());
  EXPECT_EQ(Send({}), Psns{1});
  UseNone();
  EXPECT_TRUE(tap_.IsIdle());
}

TEST_F(FaultTapTest, PacketsThatAreDelayedOvertakeToo) {
  dataplane::ImpairmentSettings delay;
  delay.delay_ns = 10;
  dataplane::Impairment rule(delay, 0);
  tap_.AddRule(kShard, delay.direction, rule);
  Use(Overtaken(2));
  EXPECT_EQ(Send({0, 1, 2, 3, 4}), Psns{});
  now_ns_ = 10;
  EXPECT_EQ(Send({}), (Psns{0, 2, 3, 1, 4}));
  tap_.RemoveRule(kShard, rule);
}

TEST_F(FaultTapTest, FramesThatWaitAreBounded) {
  FaultSettings settings;
  settings.actions.overtaken_by = 1000;
  Use(settings);
  for (uint32_t i = 0; i < dataplane::OvertakenFrames::kCapacity; ++i) {
    EXPECT_EQ(Send({i}), Psns{});
  }
  EXPECT_EQ(Send({99}), Psns{99});
  EXPECT_EQ(fault_->Snapshot().no_room, 1u);
}

TEST_F(FaultTapTest, WithoutRoomTheFaultThatCopiesCounts) {
  FaultSettings settings;
  settings.actions.marks_ecn = true;
  Use(settings);
  settings.actions = {};
  settings.actions.copies = dataplane::FaultActions::kMostCopies;
  settings.actions.delay_ns = 1000;
  Fault copies(settings, 0);
  FaultLane lane(copies);
  UseLanes({&*lane_, &lane});
  const uint32_t held = dataplane::DelayQueue::kCapacity / (settings.actions.copies + 1);
  for (uint32_t i = 0; i <= held; ++i) EXPECT_EQ(Send({i}), Psns{});
  EXPECT_EQ(fault_->Snapshot().no_room, 0u);
  EXPECT_GT(copies.Snapshot().no_room, 0u);
}

// ---- Which queue pairs ----

TEST_F(FaultTapTest, NamesTheQueuePairThatSends) {
  FaultSettings settings = Drop();
  settings.match.filter.qpns = {roce::Qpn(kOwnQpn)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{}) << "sent by it, to another";
  settings.match.filter.qpns = {roce::Qpn(kQpn)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{}) << "sent to it";
  settings.match.filter.qpns = {roce::Qpn(kQpn + 1)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1});
  settings.match.filter.qpns = {roce::Qpn(kOwnQpn)};
  settings.match.filter.opcodes.set(static_cast<size_t>(roce::Opcode::kRcWriteOnly));
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1}) << "another opcode";
}

TEST_F(FaultTapTest, NamesTheProgramOfTheQueuePair) {
  origin_.SetProgram("a_program_of_a_name_that_is_cut", 7);
  FaultSettings settings = Drop();
  const auto is_hit = [&](const char* name, uint32_t pid) {
    settings.match.queue_pair.program = {.name = name, .pid = pid};
    Use(settings);
    return Send({1}).empty();
  };
  EXPECT_TRUE(is_hit("a_program_of_a_", 0));
  EXPECT_TRUE(is_hit("", 7));
  EXPECT_TRUE(is_hit("a_program_of_a_", 7));
  EXPECT_FALSE(is_hit("a_program", 0));
  EXPECT_FALSE(is_hit("", 8));
  EXPECT_FALSE(is_hit("a_program_of_a_", 8));
}

TEST_F(FaultTapTest, NamesTheNthQueuePairThatIsCreated) {
  FaultSettings settings = Drop();
  settings.match.queue_pair = {.program = {.name = "rping"}, .created = 2};
  Use(settings);
  origin_.SetProgram("rping", 1);
  origin_.number = 8;
  EXPECT_EQ(Send({1}), Psns{1}) << "it was there before";
  dataplane::QueuePairOrigin other = origin_;
  other.SetProgram("ucmatose", 1);
  for (const uint64_t number : {5, 6}) {
    other.number = number;
    fault_->choice.NoteCreated(other);
  }
  dataplane::QueuePairOrigin first = origin_;
  first.number = 7;
  fault_->choice.NoteCreated(first);
  EXPECT_EQ(Send({1}), Psns{1});
  fault_->choice.NoteCreated(origin_);
  EXPECT_EQ(Send({1}), Psns{}) << "the second of its program";
  EXPECT_TRUE(fault_->choice.Named(origin_));
  EXPECT_FALSE(fault_->choice.Named(first));
  origin_.number = 9;
  fault_->choice.NoteCreated(origin_);
  EXPECT_EQ(Send({1}), Psns{1}) << "the third";
}

TEST_F(FaultTapTest, CountsPacketsOfQueuePairsThatAnotherLcoreKnows) {
  origin_.SetProgram("rping", 7);
  FaultSettings settings = Drop();
  settings.match.direction = LinkDirection::kIn;
  settings.match.queue_pair.program = {.name = "rping"};
  settings.match.filter.opcodes.set(static_cast<size_t>(roce::Opcode::kRcSendOnly));
  Use(settings);
  const auto passes = [&](roce::Opcode opcode, uint32_t qpn) {
    return !Pass(LinkDirection::kIn, {Packet(opcode, 1, qpn)}).empty();
  };
  EXPECT_FALSE(passes(roce::Opcode::kRcSendOnly, kOwnQpn));
  EXPECT_TRUE(passes(roce::Opcode::kRcSendOnly, kQpn)) << "nobody's";
  EXPECT_TRUE(passes(roce::Opcode::kRcWriteOnly, kQpnElsewhere)) << "another opcode";
  EXPECT_EQ(fault_->Snapshot().untracked, 0u);
  EXPECT_TRUE(passes(roce::Opcode::kRcSendOnly, kQpnElsewhere));
  EXPECT_EQ(fault_->Snapshot().untracked, 1u);
  EXPECT_EQ(fault_->Snapshot().hit, 1u);
  // Faults of all queue pairs do not ask.
  settings.match.queue_pair = {};
  Use(settings);
  EXPECT_FALSE(passes(roce::Opcode::kRcSendOnly, kQpnElsewhere));
  EXPECT_EQ(fault_->Snapshot().untracked, 0u);
}

}  // namespace
}  // namespace roci::testing::faults
