// Tag matching while the copies of matched, unexpected and rendezvous messages are stalled.
#include "dataplane/base/on_shard.h"
#include "roce/tag_header.h"
#include "tests/unit/dataplane/shard/stalled_queue_pair.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::testing {
namespace {

using roce::CompletionStatus;
using roce::QpState;

// A shared receive queue with tag matching.
class AppTagSrq : public AppSrq {
 public:
  AppTagSrq(Node& node, size_t offset, AppCq& cq)
      : AppSrq(node, offset, nullptr, cq.cq(), kTags), node_(node) {
    ops_ = Mapping(tag_memory(), tags().layout().memory_size);
  }
  // A buffer for messages with `tag` at `offset`, which completes with `wr_id`.
  void Add(uint32_t slot, uint64_t tag, uint64_t wr_id, size_t offset) {
    roci_abi_tag_op op{};
    op.opcode = ROCI_ABI_TAG_ADD;
    op.handle = slot;
    op.tag = tag;
    op.mask = ~uint64_t{0};
    op.recv_wr_id = wr_id;
    op.num_sge = 1;
    op.sges[0] = node_.Sge(offset, kBytes);
    auto* header = reinterpret_cast<roci_abi_tag_queue*>(ops_.data());
    const uint32_t place = header->producer & (tags().layout().ops_capacity - 1);
    std::memcpy(ops_.data() + tags().layout().ops_offset + place * sizeof(op), &op, sizeof(op));
    std::atomic_ref(header->producer).fetch_add(1, std::memory_order_release);
  }
  // Buffers without a matching message, including those that were added but not yet processed.
  uint32_t listed() {
    return node_.lcore().Call([&](const dataplane::OnShard& shard) {
      tags().Serve(shard, 0);
      return tags().list(shard).size();
    });
  }
  // Unexpected messages that were not reported to the program are not counted.
  bool in_sync() {
    return node_.lcore().Call(
        [&](const dataplane::OnShard& shard) { return tags().list(shard).in_sync(); });
  }

 private:
  static constexpr uint32_t kTags = 8;
  dataplane::TagQueue& tags() { return *srq().tags(); }
  Node& node_;
  Mapping ops_;
};

// Messages of tag matching.
class StalledTags : public StalledQueuePair {
 protected:
  static constexpr uint64_t kTag = 5;
  static constexpr uint64_t kOtherTag = 6;
  static constexpr uint32_t kDataBytes = kBytes - roce::TagHeader::kBytes;
  // Offset in a's memory of message headers and of the data of rendezvous messages.
  static constexpr size_t kDataAt = 64 << 10;

  dataplane::QueuePairConfig TagConfig() {
    auto config = QpConfig(b_cq_);
    config.srq = &srq_->srq();
    config.max_recv_wr = 0;
    return config;
  }
  void SetUp() override {
    StalledQueuePair::SetUp();
    if (IsSkipped()) return;
    srq_ = std::make_unique<AppTagSrq>(b_, kFirstAt, b_cq_);
    qp_a_ = std::make_unique<AppQp>(a_.client(), QpConfig(a_cq_));
    qp_b_ = std::make_unique<AppQp>(b_.client(), TagConfig());
    ConnectBoth(*qp_a_, *qp_b_);
  }
  uint32_t posted() {
    return b_.lcore().Call(
        [&](const dataplane::OnShard& shard) { return srq_->srq().posted(shard); });
  }
  // Its data bytes all are `value`. Each message has its own part of the memory.
  void SendEager(uint64_t tag, uint64_t wr_id, int value = 0x5A) {
    const size_t offset = kBytes * (next_message_++ % 64);
    std::memset(a_.memory() + offset, value, kBytes);
    const roce::TagHeader header{static_cast<uint8_t>(roce::TagOperation::kEager), 0, tag};
    header.Store(a_.memory() + offset);
    Post(*qp_a_, ROCI_ABI_WR_SEND, wr_id, a_.Sge(offset, kBytes));
  }
  void SendRendezvous(uint64_t tag, uint64_t wr_id) {
    const roce::TagHeader header{static_cast<uint8_t>(roce::TagOperation::kRendezvous), 0, tag};
    header.Store(a_.memory());
    const roce::RendezvousHeader data{a_.va(kDataAt), a_.key(), kDataBytes};
    data.Store(a_.memory() + roce::TagHeader::kBytes);
    Post(*qp_a_, ROCI_ABI_WR_SEND, wr_id, a_.Sge(0, roce::kRendezvousBytes));
  }
  // The next completion is of a tagged buffer.
  void ExpectTagged(uint64_t wr_id, CompletionStatus status, uint16_t flags) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe)) << "instead of " << wr_id;
    EXPECT_EQ(cqe.wr_id, wr_id);
    EXPECT_EQ(cqe.status, Value(status));
    EXPECT_EQ(cqe.flags, flags | ROCI_ABI_CQE_TAG);
    EXPECT_EQ(cqe.byte_length != 0, (flags & ROCI_ABI_CQE_TAG_DATA_VALID) != 0);
  }
  // Messages and buffers posted after RESET work.
  void ExpectGoesOn(uint32_t slot) {
    srq_->Add(slot, kOtherTag, 300, 0);
    SendEager(kOtherTag, 301, 0x77);
    ExpectTagged(300, CompletionStatus::kSuccess,
                 ROCI_ABI_CQE_TAG_MATCH | ROCI_ABI_CQE_TAG_DATA_VALID);
    Expect(a_cq_, 301);
    EXPECT_EQ(b_.memory()[kDataBytes - 1], std::byte{0x77});
    ExpectQuiet(b_cq_);
  }

  std::unique_ptr<AppTagSrq> srq_;
  std::unique_ptr<AppQp> qp_a_;
  std::unique_ptr<AppQp> qp_b_;
  uint32_t next_message_ = 0;
};

// The buffer belongs to the shared receive queue: it completes once, with a flush error.
TEST_F(StalledTags, ResetFlushesTheMatchedBuffer) {
  srq_->Add(0, kTag, 200, kFirstAt);
  SendEager(kTag, 1);
  AwaitStall();
  ExpectQuiet(b_cq_);
  ConnectAnew(*qp_a_, *qp_b_);
  ExpectTagged(200, CompletionStatus::kWorkRequestFlushed, ROCI_ABI_CQE_TAG_MATCH);
  ExpectQuiet(b_cq_);
  EXPECT_EQ(srq_->listed(), 0u);
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
  ExpectGoesOn(1);
}

// Messages that wait behind the stalled one have not matched a buffer.
TEST_F(StalledTags, ResetKeepsTheBuffersOfWaitingMessages) {
  srq_->Add(0, kTag, 200, kFirstAt);
  srq_->Add(1, kTag, 201, 0);
  srq_->Add(2, kTag, 202, 0);
  for (uint64_t i = 0; i < 3; ++i) SendEager(kTag, i);
  AwaitStall();
  ConnectAnew(*qp_a_, *qp_b_);
  ExpectTagged(200, CompletionStatus::kWorkRequestFlushed, ROCI_ABI_CQE_TAG_MATCH);
  EXPECT_EQ(srq_->listed(), 2u);
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  SendEager(kTag, 4);
  ExpectTagged(201, CompletionStatus::kSuccess,
               ROCI_ABI_CQE_TAG_MATCH | ROCI_ABI_CQE_TAG_DATA_VALID);
  Expect(a_cq_, 4);
  ExpectQuiet(b_cq_);
}

// A message without a match is not counted, because it is never reported to the program.
TEST_F(StalledTags, ResetGivesBackTheReceiveOfAnUnexpectedMessage) {
  SendEager(kTag, 1);
  AwaitStall();
  EXPECT_EQ(posted(), AppSrq::kSlots - 1);
  EXPECT_FALSE(srq_->in_sync());
  ConnectAnew(*qp_a_, *qp_b_);
  EXPECT_EQ(posted(), AppSrq::kSlots);
  EXPECT_TRUE(srq_->in_sync());
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
  ExpectGoesOn(0);
}

TEST_F(StalledTags, TheMatchedBufferCompletesWhenItsPageArrives) {
  srq_->Add(0, kTag, 200, kFirstAt);
  SendEager(kTag, 1);
  AwaitStall();
  ExpectQuiet(b_cq_);
  first_->Serve(std::byte{1});
  ExpectTagged(200, CompletionStatus::kSuccess,
               ROCI_ABI_CQE_TAG_MATCH | ROCI_ABI_CQE_TAG_DATA_VALID);
  Expect(a_cq_, 1);
  EXPECT_EQ(b_.memory()[kFirstAt], std::byte{0x5A});
  ExpectGoesOn(1);
}

// The completion of a buffer whose memory was unmapped does not report data.
TEST_F(StalledTags, TheMatchedBufferFailsIfItsMemoryIsUnmapped) {
  srq_->Add(0, kTag, 200, kFirstAt);
  SendEager(kTag, 1);
  AwaitStall();
  first_->TakeAway();
  ExpectTagged(200, CompletionStatus::kLocalProtectionError, ROCI_ABI_CQE_TAG_MATCH);
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
}

TEST_F(StalledTags, ErrorLetsTheMatchedBufferComplete) {
  srq_->Add(0, kTag, 200, kFirstAt);
  SendEager(kTag, 1);
  AwaitStall();
  ASSERT_EQ(MoveTo(b_, *qp_b_, QpState::kErr), roce::ModifyResult::kOk);
  first_->Serve(std::byte{1});
  ExpectTagged(200, CompletionStatus::kSuccess,
               ROCI_ABI_CQE_TAG_MATCH | ROCI_ABI_CQE_TAG_DATA_VALID);
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
}

// The RDMA READ of the rendezvous writes into memory that blocks.
TEST_F(StalledTags, ResetFlushesARendezvous) {
  srq_->Add(0, kTag, 200, kFirstAt);
  SendRendezvous(kTag, 1);
  AwaitStall();
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 200u);
  EXPECT_EQ(cqe.status, 0u);
  EXPECT_EQ(cqe.flags, ROCI_ABI_CQE_TAG | ROCI_ABI_CQE_TAG_MATCH);
  EXPECT_EQ(cqe.byte_length, kDataBytes);
  ExpectQuiet(b_cq_);
  ConnectAnew(*qp_a_, *qp_b_);
  ExpectTagged(200, CompletionStatus::kWorkRequestFlushed, 0);
  ExpectQuiet(b_cq_);
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
  while (a_cq_.Poll(&cqe)) continue;
  ExpectGoesOn(1);
}

// Matched buffers and taken entries belong to the queue pair, so the shared queue can be destroyed.
TEST_F(StalledTags, TheReceiveQueueIsDestroyed) {
  for (const bool is_tagged : {false, true}) {
    SCOPED_TRACE(is_tagged);
    AppCq cq(b_.client(), 16);
    auto srq = std::make_unique<AppTagSrq>(b_, is_tagged ? kSecondAt : kFirstAt, cq);
    if (is_tagged) srq->Add(0, kTag, 200, kSecondAt);
    auto config = TagConfig();
    config.srq = &srq->srq();
    AppQp a(a_.client(), QpConfig(a_cq_));
    AppQp b(b_.client(), config);
    ConnectBoth(a, b);
    const roce::TagHeader header{static_cast<uint8_t>(roce::TagOperation::kEager), 0, kTag};
    header.Store(a_.memory());
    Send(a);
    AwaitStall();
    EXPECT_FALSE(b_.client().Do(dataplane::DestroySharedReceiveQueue{srq->srq()}).ok())
        << "it is in use";
    b_.client().Do(dataplane::DestroyQueuePair{b.qp()});
    if (is_tagged) Expect(cq, 200, CompletionStatus::kWorkRequestFlushed);
    ExpectQuiet(cq);
    ASSERT_TRUE(b_.client().Do(dataplane::DestroySharedReceiveQueue{srq->srq()}).ok());
    ASSERT_TRUE(b_.client().Do(dataplane::DestroyCompletionQueue{*cq.cq()}).ok());
    (is_tagged ? second_ : first_)->Serve(std::byte{1});
    AwaitEndOfStall();
    a_.client().Do(dataplane::DestroyQueuePair{a.qp()});
  }
  // They do not affect the remaining objects.
  ExpectGoesOn(0);
}

}  // namespace
}  // namespace roci::testing
