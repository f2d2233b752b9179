// Gate 2 of tag operations: operations with any contents complete, and change only the list of the
// program that posted them.
#include "dataplane/qp/tag_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "dataplane/qp/queue_layouts.h"
#include "dataplane/shard/lcore.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();

using dataplane::TagQueue;

class TagQueueTest : public ::testing::Test {
 protected:
  TagQueueTest()
      : wire_(TestDataplane()), node_(TestDataplane(), &wire_, {}), cq_(node_.client(), 1 << 16) {}

  void Make(uint32_t max_tags, uint32_t max_ops) {
    queue_ = *TagQueue::Create({max_tags, max_ops}, /*handle=*/9, *cq_.cq());
    dataplane::Fd fd = queue_->TakeFd();
    memory_ = Mapping(fd.get(), queue_->layout().memory_size);
  }
  roci_abi_tag_queue* header() const {
    return reinterpret_cast<roci_abi_tag_queue*>(memory_.data());
  }
  void Write(uint32_t index, const roci_abi_tag_op& op) {
    const uint32_t place = index & (queue_->layout().ops_capacity - 1);
    std::memcpy(memory_.data() + queue_->layout().ops_offset + place * sizeof(op), &op, sizeof(op));
  }
  void Post(const roci_abi_tag_op& op) {
    Write(header()->producer, op);
    std::atomic_ref(header()->producer).fetch_add(1, std::memory_order_release);
  }
  // Everything accesses the completion queue, and so must run on its lcore.
  bool Serve() {
    return node_.lcore().Call(
        [&](const dataplane::OnShard& shard) { return queue_->Serve(shard, 1234); });
  }
  roci_abi_cqe Completion() {
    roci_abi_cqe entry{};
    EXPECT_TRUE(cq_.Wait(&entry));
    return entry;
  }
  static roci_abi_tag_op Add(uint32_t handle, uint64_t tag, uint8_t flags = ROCI_ABI_TAG_SIGNALED) {
    roci_abi_tag_op op{};
    op.opcode = ROCI_ABI_TAG_ADD;
    op.flags = flags;
    op.handle = handle;
    op.tag = tag;
    op.mask = ~uint64_t{0};
    op.wr_id = 70 + handle;
    op.num_sge = 2;
    op.sges[0] = {0x1000, 10, 1};
    op.sges[1] = {0x2000, 20, 2};
    return op;
  }

  dataplane::Wire wire_;
  Node node_;
  AppCq cq_;
  std::unique_ptr<TagQueue> queue_;
  Mapping memory_;
};

TEST_F(TagQueueTest, AddsDeletesAndCompletesSignaledOperations) {
  Make(4, 8);
  Post(Add(0, 5));
  Post(Add(1, 6, 0));
  Post(Add(1, 7, 0));  // the slot is occupied: an error completes although it is unsignaled
  roci_abi_tag_op del{};
  del.opcode = ROCI_ABI_TAG_DEL;
  del.handle = 0;
  del.wr_id = 99;
  Post(del);
  del.flags = ROCI_ABI_TAG_SIGNALED;
  Post(del);
  ASSERT_TRUE(Serve());
  EXPECT_EQ(header()->consumer, 5U);
  roci_abi_cqe entry = Completion();
  EXPECT_EQ(entry.wr_id, 70U);
  EXPECT_EQ(entry.status, 0);
  EXPECT_EQ(entry.opcode, 130);
  EXPECT_EQ(entry.flags, ROCI_ABI_CQE_TAG);
  EXPECT_EQ(entry.qp_handle, 9U);
  entry = Completion();
  EXPECT_EQ(entry.wr_id, 71U);
  EXPECT_EQ(entry.status, 22);
  entry = Completion();
  EXPECT_EQ(entry.wr_id, 99U);
  EXPECT_EQ(entry.opcode, 131);
  EXPECT_EQ(entry.status, 22);
  EXPECT_FALSE(cq_.Poll(&entry));
  EXPECT_EQ(header()->freed, 1U);
  ASSERT_NE(queue_->list(kShard).Match(6), nullptr);
  EXPECT_EQ(queue_->list(kShard).At(1).capacity, 30U);
  queue_->Release(kShard, 1);
  EXPECT_EQ(header()->freed, 2U);
}

TEST_F(TagQueueTest, RequestsASyncWhileTheCountIsBehind) {
  Make(4, 8);
  queue_->list(kShard).NoteUnexpected();
  Post(Add(0, 5));
  roci_abi_tag_op sync{};
  sync.opcode = ROCI_ABI_TAG_SYNC;
  sync.flags = ROCI_ABI_TAG_SIGNALED | ROCI_ABI_TAG_WITH_COUNT;
  sync.unexpected_count = 1;
  Post(sync);
  ASSERT_TRUE(Serve());
  EXPECT_EQ(Completion().flags, ROCI_ABI_CQE_TAG | ROCI_ABI_CQE_TAG_SYNC_REQUEST);
  const roci_abi_cqe entry = Completion();
  EXPECT_EQ(entry.opcode, 132);
  EXPECT_EQ(entry.flags, ROCI_ABI_CQE_TAG);
  EXPECT_NE(queue_->list(kShard).Match(5), nullptr);
}

TEST_F(TagQueueTest, LimitsTheOperationsPerCall) {
  constexpr uint32_t kOps = TagQueue::kOpsPerCall * 2 + 1;
  Make(4, kOps);
  roci_abi_tag_op sync{};
  sync.opcode = ROCI_ABI_TAG_SYNC;
  for (uint32_t i = 0; i < kOps; ++i) Post(sync);
  for (uint32_t call = 1; call <= 2; ++call) {
    ASSERT_TRUE(Serve());
    EXPECT_EQ(header()->consumer, call * TagQueue::kOpsPerCall);
    EXPECT_TRUE(queue_->has_more(kShard));
  }
  ASSERT_TRUE(Serve());
  EXPECT_EQ(header()->consumer, kOps);
  EXPECT_FALSE(queue_->has_more(kShard));
  for (uint32_t i = 0; i < TagQueue::kOpsPerCall; ++i) Post(sync);
  ASSERT_TRUE(Serve());
  EXPECT_FALSE(queue_->has_more(kShard)) << "as many as a call takes leave nothing";
  header()->producer += kOps + 1;
  EXPECT_FALSE(Serve());
  EXPECT_FALSE(queue_->has_more(kShard));
}

TEST_F(TagQueueTest, AnImpossibleIndexBreaksTheQueue) {
  Make(2, 4);
  header()->producer = 5;
  EXPECT_FALSE(Serve());
  header()->producer = 1;
  EXPECT_FALSE(Serve());
  EXPECT_EQ(header()->consumer, 0U);
}

TEST_F(TagQueueTest, ASharedQueueUpToTheLastHandleHasADoorbell) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const dataplane::Fd reading(ends[0]);
  dataplane::ShardClientConfig config;
  config.max_queue_pairs = 1000;
  config.async_socket = std::make_shared<dataplane::EventSocket>(dataplane::Fd(ends[1]), nullptr);
  const auto session = dataplane::ShardClient::Create(node_.device(), node_.client().lcore_index(),
                                                      std::move(config));
  ASSERT_TRUE(session.ok());
  const AppCq cq(**session, 16);
  dataplane::SharedReceiveQueueConfig srq;
  srq.max_wr = 4;
  srq.max_sge = 1;
  srq.cq = cq.cq();
  srq.tags = {4, 8};
  const uint32_t last = (*session)->last_srq_handle();
  EXPECT_EQ(last, ROCI_ABI_MAX_QP_HANDLES - 1000u);
  EXPECT_TRUE((*session)->Do(dataplane::CreateSharedReceiveQueue{srq, last}).ok());
  EXPECT_FALSE((*session)->Do(dataplane::CreateSharedReceiveQueue{srq, last + 1}).ok());
  srq.tags = {};
  EXPECT_TRUE((*session)->Do(dataplane::CreateSharedReceiveQueue{srq, last + 1}).ok())
      << "needs none";
}

TEST_F(TagQueueTest, RandomOperationsStayWithinBounds) {
  std::mt19937_64 random(1);
  Make(8, 16);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t count = random() % 17;
    for (uint64_t i = 0; i < count; ++i) {
      roci_abi_tag_op op;
      auto* bytes = reinterpret_cast<unsigned char*>(&op);
      for (size_t k = 0; k < sizeof(op); ++k) bytes[k] = static_cast<unsigned char>(random());
      if (random() % 2 == 0) op.opcode = static_cast<uint8_t>(random() % 3);
      if (random() % 2 == 0) op.handle = static_cast<uint32_t>(random() % 10);
      if (random() % 2 == 0) op.num_sge = static_cast<uint8_t>(random() % 10);
      op.tag &= 3;
      op.mask = 3;
      Post(op);
    }
    ASSERT_TRUE(Serve());
    ASSERT_LE(queue_->list(kShard).size(), 8U);
    const dataplane::TaggedBuffer* found = queue_->list(kShard).Match(random() % 4);
    if (found != nullptr) {
      ASSERT_LE(found->num_sge, uint32_t{ROCI_ABI_MAX_TAG_SGE});
      ASSERT_LT(found->slot(), 8U);
      queue_->Release(kShard, found->slot());
    }
    roci_abi_cqe ignored;
    while (cq_.Poll(&ignored)) {
    }
  }
}

}  // namespace
}  // namespace roci::testing
