#include "dataplane/qp/completion_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "dataplane/shard/worker.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "tests/unit/single_step.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {
namespace {

using dataplane::CompletionQueue;

// Entries are written by this thread through Call: the queue belongs to the lcore.
class CompletionQueueTest : public ::testing::Test {
 protected:
  CompletionQueueTest()
      : wire_(TestDataplane()), node_(TestDataplane(), &wire_, {}), cq_(node_.client(), 5) {}

  void Write(AppCq& cq, uint64_t wr_id) {
    node_.lcore().Call([&](const dataplane::OnShard& shard) {
      WriteHere(shard, cq, wr_id);
      node_.lcore().worker(shard).events().Publish(shard);
    });
  }
  // On the lcore.
  static void WriteHere(const dataplane::OnShard& shard, AppCq& cq, uint64_t wr_id,
                        bool solicited = false) {
    roce::Completion completion{};
    completion.solicited = solicited;
    completion.wr_id = wr_id;
    completion.slot = 3;
    completion.signaled = true;
    cq.cq()->Write(shard, completion, {77, 5}, true, 123);
  }

  dataplane::Wire wire_;
  Node node_;
  AppCq cq_;
};

TEST_F(CompletionQueueTest, EntriesComeOutInOrderThroughManyWraps) {
  EXPECT_EQ(cq_.cq()->capacity(), 8u);
  roci_abi_cqe cqe;
  EXPECT_FALSE(cq_.Poll(&cqe));
  for (uint64_t i = 0; i < 100; ++i) {
    Write(cq_, i);
    if (i % 8 != 7) continue;
    for (uint64_t k = i - 7; k <= i; ++k) {
      ASSERT_TRUE(cq_.Poll(&cqe));
      EXPECT_EQ(cqe.wr_id, k);
    }
    EXPECT_FALSE(cq_.Poll(&cqe));
  }
  EXPECT_EQ(cqe.qpn, 77u);
  EXPECT_EQ(cqe.qp_handle, 5u);
  EXPECT_EQ(cqe.slot, 3u);
  EXPECT_EQ(cqe.timestamp_ns, 123u);
}

TEST_F(CompletionQueueTest, EntriesOfABurstAppearTogether) {
  Write(cq_, 0);
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq_.Poll(&cqe));
  node_.lcore().Call([&](const dataplane::OnShard& shard) {
    for (uint64_t i = 1; i <= 4; ++i) WriteHere(shard, cq_, i);
    EXPECT_FALSE(cq_.Poll(&cqe)) << "before they are published";
    node_.lcore().worker(shard).events().Publish(shard);
    for (uint64_t i = 1; i <= 2; ++i) {
      ASSERT_TRUE(cq_.Poll(&cqe));
      EXPECT_EQ(cqe.wr_id, i);
    }
    // A second call has no effect.
    node_.lcore().worker(shard).events().Publish(shard);
  });
  for (uint64_t i = 3; i <= 4; ++i) {
    ASSERT_TRUE(cq_.Poll(&cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
  EXPECT_FALSE(cq_.Poll(&cqe));
}

// A move of `cq` to a ring of `entries`, of which no part was done.
dataplane::CompletionQueueMove MoveTo(uint32_t entries, const AppCq& cq) {
  return {.ring = *CompletionQueue::CreateRing(entries),
          .fd = {},
          .capacity = entries,
          .consumer = cq.consumed(),
          .copied = 0,
          .visible = 0};
}

TEST_F(CompletionQueueTest, DelayedEntriesAreNotLostWithoutABurst) {
  // Entries are published only by the loop iteration itself, and by a move to another ring.
  node_.lcore().Call([&](const dataplane::OnShard& shard) { WriteHere(shard, cq_, 1); });
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq_.Wait(&cqe, 5000));
  EXPECT_EQ(cqe.wr_id, 1u);
  dataplane::CompletionQueueMove move = MoveTo(16, cq_);
  node_.lcore().Call([&](const dataplane::OnShard& shard) {
    WriteHere(shard, cq_, 2);
    ASSERT_EQ(cq_.cq()->SwapRing(shard, move), CompletionQueue::MoveResult::kMoved);
    node_.lcore().worker(shard).events().Publish(shard);
  });
  cq_.Switch(cq_.cq()->TakeFd());
  ASSERT_TRUE(cq_.Poll(&cqe));
  EXPECT_EQ(cqe.wr_id, 2u);
  EXPECT_FALSE(cq_.Poll(&cqe));
}

// The lcore copies few entries; the control thread copies the others while the lcore goes on.
TEST_F(CompletionQueueTest, AMoveCopiesMostEntriesOutsideOfTheShard) {
  constexpr uint32_t kMost = CompletionQueue::kMostCopied;
  AppCq cq(node_.client(), 16 * kMost);
  uint64_t written = 0;
  const auto write = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) Write(cq, written++);
  };
  roci_abi_cqe cqe;
  // The ring has wrapped, and the last entries are unconsumed.
  write(15 * kMost);
  for (uint64_t i = 0; i < 10 * kMost; ++i) ASSERT_TRUE(cq.Poll(&cqe));
  write(3 * kMost);
  dataplane::CompletionQueueMove move = MoveTo(32 * kMost, cq);
  const auto swap = [&] {
    return node_.lcore().Call(
        [&](const dataplane::OnShard& shard) { return cq.cq()->SwapRing(shard, move); });
  };
  ASSERT_EQ(swap(), CompletionQueue::MoveResult::kCopyFirst);
  EXPECT_EQ(move.copied, 0U);
  EXPECT_EQ(move.visible, 8 * kMost);
  for (uint32_t copied = 3 * kMost; copied < 9 * kMost; copied += 3 * kMost) {
    cq.cq()->CopyEntries(move, 3 * kMost);
    EXPECT_EQ(move.copied, std::min(copied, 8 * kMost));
  }
  cq.cq()->CopyEntries(move, 3 * kMost);
  write(kMost + 1);
  ASSERT_EQ(swap(), CompletionQueue::MoveResult::kCopyFirst);
  EXPECT_EQ(move.copied, 8 * kMost);
  cq.cq()->CopyEntries(move, move.visible);
  write(kMost);
  ASSERT_EQ(swap(), CompletionQueue::MoveResult::kMoved);
  uint64_t consumed = 10 * kMost;
  cq.Switch(cq.cq()->TakeFd());
  write(5);
  while (cq.Poll(&cqe)) ASSERT_EQ(cqe.wr_id, consumed++);
  EXPECT_EQ(consumed, written);
}

TEST_F(CompletionQueueTest, OverflowKillsTheQueueAndIsReportedOnce) {
  for (uint64_t i = 0; i < 10; ++i) Write(cq_, i);
  EXPECT_TRUE(cq_.cq()->overflowed());
  EXPECT_EQ(cq_.header()->overflowed, 1u);
  roci_abi_async_event event{};
  ASSERT_EQ(read(node_.async_socket(), &event, sizeof(event)), ssize_t{sizeof(event)});
  EXPECT_EQ(event.type, 0u);  // IBV_EVENT_CQ_ERR
  EXPECT_LT(read(node_.async_socket(), &event, sizeof(event)), 0);
  EXPECT_EQ(cq_.cq()->async_events(), 1u);
  roci_abi_cqe cqe;
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(cq_.Poll(&cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
  Write(cq_, 99);
  EXPECT_FALSE(cq_.Poll(&cqe));
  ASSERT_TRUE(cq_.Resize(node_.client(), 32, cq_.consumed()).ok());
  Write(cq_, 100);
  EXPECT_FALSE(cq_.Poll(&cqe)) << "a larger ring does not bring it back";
  EXPECT_LT(read(node_.async_socket(), &event, sizeof(event)), 0);
}

// As `roci event` does it.
TEST_F(CompletionQueueTest, AQueueThatIsBrokenWithRoomTakesNoMoreEntries) {
  Write(cq_, 1);
  node_.lcore().Call([&](const dataplane::OnShard& shard) { cq_.cq()->Overflow(shard); });
  Write(cq_, 2);
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq_.Poll(&cqe));
  EXPECT_EQ(cqe.wr_id, 1u);
  EXPECT_FALSE(cq_.Poll(&cqe));
}

TEST_F(CompletionQueueTest, AnIgnoredOverflowLosesOnlyEntries) {
  cq_.cq()->IgnoreOverrun();
  for (uint64_t i = 0; i < 10; ++i) Write(cq_, i);
  node_.lcore().Call(
      [&](const dataplane::OnShard& shard) { cq_.cq()->LoseEntry(shard); });  // by a fault
  EXPECT_FALSE(cq_.cq()->overflowed());
  roci_abi_async_event event{};
  EXPECT_LT(read(node_.async_socket(), &event, sizeof(event)), 0);
  roci_abi_cqe cqe;
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(cq_.Poll(&cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
  EXPECT_FALSE(cq_.Poll(&cqe));
  Write(cq_, 99);
  ASSERT_TRUE(cq_.Poll(&cqe));
  EXPECT_EQ(cqe.wr_id, 99u);
}

TEST_F(CompletionQueueTest, AnInvalidConsumerIndexOverflowsTheQueue) {
  for (uint64_t i = 0; i < 8; ++i) Write(cq_, i);
  cq_.header()->consumer = 1000;
  Write(cq_, 8);
  EXPECT_TRUE(cq_.cq()->overflowed());
}

TEST_F(CompletionQueueTest, ResizingKeepsUnconsumedEntries) {
  for (uint64_t i = 0; i < 20; ++i) {
    Write(cq_, i);
    roci_abi_cqe cqe;
    if (i < 14) {
      ASSERT_TRUE(cq_.Poll(&cqe));
    }
  }
  // 14..19 are left. Too small, impossible index, then right.
  EXPECT_FALSE(cq_.Resize(node_.client(), 4, cq_.consumed()).ok());
  EXPECT_FALSE(cq_.Resize(node_.client(), 64, 7777).ok());
  ASSERT_TRUE(cq_.Resize(node_.client(), 64, cq_.consumed()).ok());
  Write(cq_, 20);
  roci_abi_cqe cqe;
  for (uint64_t i = 14; i <= 20; ++i) {
    ASSERT_TRUE(cq_.Poll(&cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
  EXPECT_FALSE(cq_.Poll(&cqe));
  for (uint64_t i = 0; i < 57; ++i) Write(cq_, i);
  EXPECT_FALSE(cq_.cq()->overflowed());
}

TEST_F(CompletionQueueTest, AFullEventSocketDelaysEventsAndLosesNone) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  AppCq cq(node_.client(), 16, ends[1], 0x55);
  const uint64_t filler = 0;
  int fillers = 0;
  while (write(ends[1], &filler, sizeof(filler)) == sizeof(filler)) ++fillers;
  cq.Arm(ROCI_ABI_CQ_ARM_ANY);
  Write(cq, 1);
  usleep(5000);
  EXPECT_EQ(cq.cq()->comp_events(), 0u);
  uint64_t value = 0;
  for (int i = 0; i < fillers; ++i) ASSERT_EQ(read(ends[0], &value, 8), 8);
  for (int i = 0; i < 1000 && cq.cq()->comp_events() == 0; ++i) usleep(1000);
  EXPECT_EQ(cq.cq()->comp_events(), 1u);
  ASSERT_EQ(read(ends[0], &value, 8), 8);
  EXPECT_EQ(value, 0x55u);
  EXPECT_TRUE(node_.client().Do(dataplane::DestroyCompletionQueue{*cq.cq()}).ok());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(CompletionQueueTest, SendsAnEventThatThePluginReturnsAgain) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  AppCq cq(node_.client(), 16, ends[1], 0x55);
  dataplane::CompletionQueue* const queues[] = {cq.cq()};
  node_.client().Do(dataplane::ReturnCompletionEvents{queues});
  uint64_t value = 0;
  EXPECT_LT(read(ends[0], &value, 8), 0) << "none was sent";
  cq.Arm(ROCI_ABI_CQ_ARM_ANY);
  Write(cq, 1);
  for (int i = 0; i < 1000 && cq.cq()->comp_events() == 0; ++i) usleep(1000);
  ASSERT_EQ(read(ends[0], &value, 8), 8);
  node_.client().Do(dataplane::ReturnCompletionEvents{queues});
  ASSERT_EQ(read(ends[0], &value, 8), 8);
  EXPECT_EQ(value, 0x55u);
  EXPECT_EQ(cq.cq()->comp_events(), 1u);
  EXPECT_TRUE(node_.client().Do(dataplane::DestroyCompletionQueue{*cq.cq()}).ok());
  close(ends[0]);
  close(ends[1]);
}

class ModerationTest : public CompletionQueueTest {
 public:
  ModerationTest() {
    EXPECT_EQ(pipe2(ends_, O_NONBLOCK | O_CLOEXEC), 0);
    moderated_ = std::make_unique<AppCq>(node_.client(), 16, ends_[1], 0x55);
  }
  ~ModerationTest() override {
    EXPECT_TRUE(node_.client().Do(dataplane::DestroyCompletionQueue{*moderated_->cq()}).ok());
    close(ends_[0]);
    close(ends_[1]);
  }

 protected:
  void Moderate(uint32_t count, uint64_t period_ns) {
    node_.client().Do(dataplane::ModerateCompletionQueue{*moderated_->cq(), {count, period_ns}});
  }
  // The number of events, after the lcore has executed all earlier commands.
  uint32_t Events() {
    for (int round = 0; round < 2; ++round) node_.lcore().FinishRound();
    return moderated_->cq()->comp_events();
  }
  void WriteOne() { Write(*moderated_, 1); }

  int ends_[2] = {-1, -1};
  std::unique_ptr<AppCq> moderated_;
};

TEST_F(ModerationTest, CountsEntriesFromTheArmingOn) {
  Moderate(3, 0);
  for (int i = 0; i < 5; ++i) WriteOne();
  EXPECT_EQ(Events(), 0u) << "not armed";
  moderated_->Arm(ROCI_ABI_CQ_ARM_ANY);
  WriteOne();
  WriteOne();
  EXPECT_EQ(Events(), 0u);
  WriteOne();
  EXPECT_EQ(Events(), 1u);
  for (int i = 0; i < 3; ++i) WriteOne();
  EXPECT_EQ(Events(), 1u) << "not armed again";
}

// Each arming is answered by one event, even if the program arms immediately after it saw an entry.
TEST_F(ModerationTest, ArmingAfterAnEntryReportsTheNextOne) {
  for (const roci_abi_cq_arm arm : {ROCI_ABI_CQ_ARM_ANY, ROCI_ABI_CQ_ARM_SOLICITED}) {
    const uint32_t before = Events();
    moderated_->Arm(arm);
    node_.lcore().Call([&](const dataplane::OnShard& shard) {
      for (uint64_t i = 1; i <= 2; ++i) {
        WriteHere(shard, *moderated_, i, true);
        EXPECT_EQ(moderated_->cq()->comp_events(), before) << "before the entry can be seen";
        node_.lcore().worker(shard).events().Publish(shard);
        roci_abi_cqe cqe;
        EXPECT_TRUE(moderated_->Poll(&cqe));
        EXPECT_EQ(cqe.wr_id, i);
        moderated_->Arm(arm);
      }
    });
    EXPECT_EQ(Events(), before + 2);
    node_.lcore().Call(
        [&](const dataplane::OnShard& shard) { WriteHere(shard, *moderated_, 3, false); });
    const uint32_t any = arm == ROCI_ABI_CQ_ARM_ANY ? 1 : 0;
    EXPECT_EQ(Events(), before + 2 + any);
    node_.lcore().Call(
        [&](const dataplane::OnShard& shard) { WriteHere(shard, *moderated_, 4, true); });
    EXPECT_EQ(Events(), before + 3);
    roci_abi_cqe cqe;
    while (moderated_->Poll(&cqe)) {
    }
  }
}

// A program may poll at any moment: a visible entry is complete, and the event for an earlier
// arming was written before.
TEST_F(ModerationTest, AVisibleEntryIsCompleteAndFollowsItsEvent) {
  moderated_->Arm(ROCI_ABI_CQ_ARM_ANY);
  const auto* header = reinterpret_cast<const std::byte*>(moderated_->header());
  constexpr size_t kEntries = dataplane::CompletionQueue::kEntriesOffset;
  uint32_t seen = 0;
  uint32_t looks = 0;
  const auto check = [&](std::span<const std::byte> ring) {
    roci_abi_cq shared;
    std::array<roci_abi_cqe, 2> entries;
    std::memcpy(&shared, ring.data(), sizeof(shared));
    std::memcpy(entries.data(), ring.data() + kEntries, sizeof(entries));
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].generation == 0) continue;
      seen |= 1u << i;
      EXPECT_EQ(entries[i].wr_id, i + 1);
      EXPECT_EQ(entries[i].qpn, 77u);
      EXPECT_EQ(entries[i].qp_handle, 5u);
      EXPECT_EQ(entries[i].slot, 3u);
      EXPECT_EQ(entries[i].timestamp_ns, 123u);
    }
    if (entries[0].generation != 0) {
      EXPECT_EQ(shared.arm, uint32_t{ROCI_ABI_CQ_ARM_NONE});
    }
    return !HasFailure();
  };
  node_.lcore().Call([&](const dataplane::OnShard& shard) {
    const auto write = [&] {
      WriteHere(shard, *moderated_, 1);
      WriteHere(shard, *moderated_, 2);
      node_.lcore().worker(shard).events().Publish(shard);
    };
    looks = ForEachStep({header, kEntries + 2 * sizeof(roci_abi_cqe)}, write, check);
  });
  if (looks == 0) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(seen, 3u);
}

// Faults that lose an event are counted by it.
TEST_F(ModerationTest, ExactlyTheEntryThatRaisesTheEventIsSaidToDoSo) {
  struct Burst {
    uint32_t count;  // of the moderation; 0: none
    roci_abi_cq_arm arm;
    std::vector<bool> solicited;  // of each entry
    std::vector<bool> raises;
  };
  const Burst bursts[] = {
      {0, ROCI_ABI_CQ_ARM_NONE, {true, true}, {false, false}},
      {0, ROCI_ABI_CQ_ARM_ANY, {false, true}, {true, false}},
      {0, ROCI_ABI_CQ_ARM_SOLICITED, {false, false}, {false, false}},
      {0, ROCI_ABI_CQ_ARM_SOLICITED, {false, true, true}, {false, true, false}},
      {2, ROCI_ABI_CQ_ARM_ANY, {false}, {false}},
      {2, ROCI_ABI_CQ_ARM_ANY, {false, false}, {true, false}},
      {2, ROCI_ABI_CQ_ARM_ANY, {false, false, false, false}, {false, true, false, false}},
  };
  for (const Burst& burst : bursts) {
    Moderate(burst.count, 0);
    moderated_->Arm(burst.arm);
    const uint32_t before = Events();
    std::vector<bool> raises;
    node_.lcore().Call([&](const dataplane::OnShard& shard) {
      for (const bool solicited : burst.solicited) {
        raises.push_back(moderated_->cq()->RaisesEvent(shard, solicited));
        WriteHere(shard, *moderated_, 1, solicited);
      }
    });
    EXPECT_EQ(raises, burst.raises);
    EXPECT_EQ(Events() - before, std::ranges::count(raises, true));
    roci_abi_cqe cqe;
    while (moderated_->Poll(&cqe)) {
    }
  }
}

TEST_F(ModerationTest, APeriodEndsTheWait) {
  Moderate(100, 20'000'000);
  moderated_->Arm(ROCI_ABI_CQ_ARM_ANY);
  WriteOne();
  EXPECT_EQ(Events(), 0u);
  for (int i = 0; i < 1000 && moderated_->cq()->comp_events() == 0; ++i) usleep(1000);
  EXPECT_EQ(Events(), 1u);
}

TEST_F(ModerationTest, ADelayedEventSurvivesResizingAndIsSentWhenModerationEnds) {
  Moderate(3, 0);
  moderated_->Arm(ROCI_ABI_CQ_ARM_ANY);
  WriteOne();
  WriteOne();
  EXPECT_EQ(Events(), 0u);
  ASSERT_TRUE(moderated_->Resize(node_.client(), 64, moderated_->consumed()).ok());
  EXPECT_EQ(Events(), 0u);
  Moderate(0, 0);
  EXPECT_EQ(Events(), 1u);
}

TEST_F(ModerationTest, AQueueCanBeDestroyedWithADelayedEvent) {
  Moderate(100, 1'000'000'000);
  moderated_->Arm(ROCI_ABI_CQ_ARM_ANY);
  WriteOne();
  EXPECT_EQ(Events(), 0u);
}

}  // namespace
}  // namespace roci::testing
