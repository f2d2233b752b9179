// Receive requests in a shared receive queue, and the slots that completions free.
#include "verbs_provider/rings/shared_recv_queue.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "tests/unit/single_step.h"
#include "tests/unit/verbs_provider/rings/rings_fixture.h"

namespace roci::provider {
namespace {

constexpr uint32_t kSlots = 3;
constexpr uint32_t kStride = 32;

class SharedRecvQueueTest : public ::testing::Test {
 public:
  SharedRecvQueueTest() : memory_(kBytes) {
    EXPECT_EQ(queue_.Use(Memory(), Layout()), 0);
    queue_.limit = kSlots;
  }
  ~SharedRecvQueueTest() override { queue_.FreeMemory(); }

 protected:
  static roci_abi_srq_layout Layout() {
    roci_abi_srq_layout layout = {};
    layout.max_wr = kSlots;
    layout.max_sge = 1;
    layout.ring_capacity = 4;
    layout.stride = kStride;
    layout.ring_offset = sizeof(roci_abi_srq);
    layout.slots_offset = sizeof(roci_abi_srq) + 64;
    layout.memory_size = kBytes;
    return layout;
  }
  SharedMapping Memory() { return {memory_.At<std::byte>(), kBytes}; }
  int Post(uint64_t wr_id, int num_sge = 1) {
    ibv_sge sge = {0x1000, 10, 7};
    ibv_recv_wr wr = {.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = num_sge};
    ibv_recv_wr* bad = nullptr;
    return PostSharedRecvList(queue_, &wr, &bad);
  }
  // The slot number in the ring at `index`.
  uint32_t SlotAt(uint32_t index) const { return queue_.ring[index & queue_.ring_mask]; }
  uint64_t WrIdIn(uint32_t slot) const {
    return reinterpret_cast<const roci_abi_recv_wqe*>(queue_.slots + size_t{slot} * kStride)->wr_id;
  }

  static constexpr size_t kBytes = sizeof(roci_abi_srq) + 64 + size_t{kSlots} * kStride;
  Lines memory_;
  SharedRecvQueue queue_;
};

TEST_F(SharedRecvQueueTest, NamesAFreeSlotForEachEntryUntilItIsFull) {
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_EQ(Post(100 + i), 0);
    EXPECT_EQ(queue_.shared->producer, i + 1);
    EXPECT_LT(SlotAt(i), kSlots);
    EXPECT_EQ(WrIdIn(SlotAt(i)), 100 + i);
    slots.insert(SlotAt(i));
  }
  EXPECT_EQ(slots.size(), kSlots);
  EXPECT_EQ(Post(200), ENOMEM);
  EXPECT_EQ(queue_.shared->producer, kSlots);
}

TEST_F(SharedRecvQueueTest, ReusesAFreedSlot) {
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(Post(i), 0);
  for (uint32_t turn = 0; turn < 20; ++turn) {
    const uint32_t slot = SlotAt(turn);
    queue_.Release(slot);
    EXPECT_EQ(queue_.outstanding(), kSlots - 1);
    ASSERT_EQ(Post(100 + turn), 0);
    EXPECT_EQ(SlotAt(kSlots + turn), slot);
    EXPECT_EQ(WrIdIn(slot), 100 + turn);
  }
}

// The slot number of a completion is in shared memory and may be invalid.
TEST_F(SharedRecvQueueTest, IgnoresInvalidSlotNumbers) {
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(Post(i), 0);
  for (const uint32_t slot : {kSlots, kSlots + 1, ~0u}) queue_.Release(slot);
  EXPECT_EQ(queue_.outstanding(), kSlots);
  EXPECT_EQ(Post(9), ENOMEM);
  for (uint32_t i = 0; i < 2 * kSlots; ++i) queue_.Release(1);
  EXPECT_EQ(queue_.outstanding(), 0u);
}

TEST_F(SharedRecvQueueTest, RefusesTooManyElements) {
  EXPECT_EQ(Post(1, 2), EINVAL);
  EXPECT_EQ(Post(1, -1), EINVAL);
  EXPECT_EQ(queue_.outstanding(), 0u);
  EXPECT_EQ(queue_.shared->producer, 0u);
}

TEST_F(SharedRecvQueueTest, RefusesALayoutThatDoesNotFit) {
  roci_abi_srq_layout layout = Layout();
  layout.max_wr = kSlots + 1;
  SharedRecvQueue other;
  EXPECT_EQ(other.Use(Memory(), layout), EPROTO);
  layout = Layout();
  layout.ring_capacity = 3;
  EXPECT_EQ(other.Use(Memory(), layout), EPROTO);
  layout = Layout();
  layout.stride = 16;
  EXPECT_EQ(other.Use(Memory(), layout), EPROTO);
}

// At any time, all entries before the producer index are complete.
TEST_F(SharedRecvQueueTest, PublishesEntriesThatAreWritten) {
  const auto* memory = reinterpret_cast<const std::byte*>(queue_.shared);
  uint32_t published = 0;
  const auto check = [&](std::span<const std::byte> bytes) {
    memcpy(&published, bytes.data(), sizeof(published));
    for (uint32_t i = 0; i < published; ++i) {
      uint32_t slot = 0;
      uint64_t wr_id = 0;
      memcpy(&slot, bytes.data() + Layout().ring_offset + size_t{i} * sizeof(slot), sizeof(slot));
      EXPECT_LT(slot, kSlots);
      memcpy(&wr_id, bytes.data() + Layout().slots_offset + size_t{slot} * kStride, sizeof(wr_id));
      EXPECT_EQ(wr_id, 100 + i);
    }
    return !HasFailure();
  };
  const auto post = [&] {
    Post(100);
    Post(101);
  };
  if (ForEachStep({memory, kBytes}, post, check) == 0)
    GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(published, 2u);
}

}  // namespace
}  // namespace roci::provider
