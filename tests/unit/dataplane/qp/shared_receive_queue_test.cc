// Gate 2 of shared receive queues: the daemon reads valid entries from a ring with arbitrary
// contents, and reports the others.
#include "dataplane/qp/shared_receive_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "dataplane/base/async_event.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {
namespace {

using roce::FetchResult;

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();
constexpr uint32_t kEntries = 5;

// No queue pair uses the queue, so the lcore does not access it.
class SharedReceiveQueueTest : public ::testing::Test {
 protected:
  SharedReceiveQueueTest() : wire_(TestDataplane()), node_(TestDataplane(), &wire_, {}) {
    dataplane::SharedReceiveQueueConfig config;
    config.max_wr = kEntries;
    config.max_sge = 2;
    config.user_handle = 0x77;
    auto created = node_.client().Do(
        dataplane::CreateSharedReceiveQueue{config, node_.client().last_srq_handle() + 1});
    EXPECT_TRUE(created.ok());
    srq_ = created->queue;
    const roci_abi_srq_layout& layout = srq_->layout();
    memory_ = Mapping(created->memory.get(), layout.memory_size);
    header_ = reinterpret_cast<roci_abi_srq*>(memory_.data());
    ring_ = reinterpret_cast<uint32_t*>(memory_.data() + layout.ring_offset);
  }
  void Post(uint32_t slot, uint32_t num_sge = 1) {
    const roci_abi_srq_layout& layout = srq_->layout();
    const roci_abi_recv_wqe entry{100 + slot, num_sge, 0};
    if (slot < kEntries) {
      std::memcpy(memory_.data() + layout.slots_offset + size_t{slot} * layout.stride, &entry,
                  sizeof(entry));
    }
    ring_[header_->producer & (layout.ring_capacity - 1)] = slot;
    ++header_->producer;
  }
  FetchResult Fetch() { return srq_->Fetch(kShard, wqe_, status_); }
  // Types of the events so far.
  std::vector<uint32_t> Events() {
    std::vector<uint32_t> types;
    roci_abi_async_event event{};
    while (read(node_.async_socket(), &event, sizeof(event)) == ssize_t{sizeof(event)}) {
      EXPECT_EQ(event.element, 0x77u);
      types.push_back(event.type);
    }
    return types;
  }

  dataplane::Wire wire_;
  Node node_;
  dataplane::SharedReceiveQueue* srq_ = nullptr;
  Mapping memory_;
  roci_abi_srq* header_ = nullptr;
  uint32_t* ring_ = nullptr;
  roce::RecvWqe wqe_{};
  roce::CompletionStatus status_{};
};

TEST_F(SharedReceiveQueueTest, TakesSlotsInTheOrderOfPosting) {
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  for (uint32_t turn = 0; turn < 20; ++turn) {
    for (const uint32_t slot : {4u, 0u, 2u}) Post(slot);
    for (const uint32_t slot : {4u, 0u, 2u}) {
      ASSERT_EQ(Fetch(), FetchResult::kOk);
      EXPECT_EQ(wqe_.slot, slot);
      EXPECT_EQ(wqe_.wr_id, 100u + slot);
    }
    EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  }
  EXPECT_TRUE(Events().empty());
}

TEST_F(SharedReceiveQueueTest, AReturnedEntryIsTakenNext) {
  Post(1);
  Post(2);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  srq_->GiveBack(kShard, wqe_);
  EXPECT_EQ(srq_->posted(kShard), 2u);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.slot, 1u);
  ASSERT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.slot, 2u);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
}

TEST_F(SharedReceiveQueueTest, AnInvalidSlotNumberBreaksTheQueue) {
  Post(kEntries - 1);
  Post(kEntries);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_TRUE(srq_->broken(kShard));
  Post(0);
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_EQ(Events(), std::vector{dataplane::kEventSrqError});
}

TEST_F(SharedReceiveQueueTest, MoreEntriesThanSlotsBreakTheQueue) {
  for (uint32_t slot = 0; slot < kEntries; ++slot) Post(slot);
  EXPECT_EQ(srq_->posted(kShard), kEntries);
  EXPECT_FALSE(srq_->broken(kShard));
  Post(0);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  for (uint32_t slot = 1; slot < kEntries; ++slot) EXPECT_EQ(Fetch(), FetchResult::kOk);
  header_->producer += kEntries;
  EXPECT_EQ(Fetch(), FetchResult::kEmpty);
  EXPECT_TRUE(srq_->broken(kShard));
  EXPECT_EQ(Events(), std::vector{dataplane::kEventSrqError});
}

TEST_F(SharedReceiveQueueTest, TooManyElementsAreAnErrorOfTheEntry) {
  Post(0, 3);
  Post(1, 2);
  EXPECT_EQ(Fetch(), FetchResult::kBad);
  EXPECT_EQ(wqe_.wr_id, 100u);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(wqe_.num_sge, 2);
  EXPECT_FALSE(srq_->broken(kShard));
}

// IBTA vol 1, 10.2.9.2.
TEST_F(SharedReceiveQueueTest, TheLimitEventIsRaisedOnce) {
  for (uint32_t slot = 0; slot < kEntries; ++slot) Post(slot);
  srq_->SetLimit(kShard, 3);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(Events().empty()) << "as many as the limit";
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(Events(), std::vector{dataplane::kEventSrqLimitReached});
  EXPECT_EQ(srq_->limit(kShard), 0u);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_TRUE(Events().empty());
  srq_->SetLimit(kShard, 1);
  EXPECT_EQ(Fetch(), FetchResult::kOk);
  EXPECT_EQ(Events(), std::vector{dataplane::kEventSrqLimitReached});
}

}  // namespace
}  // namespace roci::testing
