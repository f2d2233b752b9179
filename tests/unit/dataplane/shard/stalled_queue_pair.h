// Two nodes, one of which has memory that blocks the daemon's copies until the test serves its page
// faults.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/xrc_client.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "tests/unit/waiting_memory.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {

inline constexpr uint32_t kBytes = 64;
// Parts of the memory of the node whose memory blocks.
inline constexpr size_t kFirstAt = 512 << 10;
inline constexpr size_t kSecondAt = 768 << 10;
inline constexpr size_t kWaitingBytes = 128 << 10;

constexpr uint8_t Value(roce::CompletionStatus status) { return static_cast<uint8_t>(status); }

// A shared receive queue of `node`. Slot i receives to `offset` of its memory with wr_id 100 + i.
class AppSrq {
 public:
  static constexpr uint32_t kSlots = 4;
  AppSrq(Node& node, size_t offset, dataplane::XrcTargets* domain, dataplane::CompletionQueue* cq,
         uint32_t max_tags = 0) {
    dataplane::SharedReceiveQueueConfig config;
    config.tags = {.max_tags = max_tags, .max_ops = max_tags};
    config.pd = Node::kPd;
    config.max_wr = kSlots;
    config.domain = domain;
    config.cq = cq;
    // Only queues with tag matching need a handle with a doorbell.
    const uint32_t handle =
        max_tags != 0 ? ++last_tag_handle_ : node.client().last_srq_handle() + 1;
    auto created = node.client().Do(dataplane::CreateSharedReceiveQueue{config, handle});
    EXPECT_TRUE(created.ok());
    srq_ = created->queue;
    const roci_abi_srq_layout& layout = srq_->layout();
    memory_ = Mapping(created->memory.get(), layout.memory_size);
    tag_memory_ = std::move(created->tag_memory);
    auto* header = reinterpret_cast<roci_abi_srq*>(memory_.data());
    for (uint32_t i = 0; i < kSlots; ++i) {
      std::byte* slot = memory_.data() + layout.slots_offset + size_t{i} * layout.stride;
      const roci_abi_recv_wqe entry{100 + i, 1, 0};
      const roci_abi_sge sge = node.Sge(offset, kBytes);
      std::memcpy(slot, &entry, sizeof(entry));
      std::memcpy(slot + sizeof(entry), &sge, sizeof(sge));
      reinterpret_cast<uint32_t*>(memory_.data() + layout.ring_offset)[i] = i;
    }
    std::atomic_ref(header->producer).store(kSlots, std::memory_order_release);
  }
  dataplane::SharedReceiveQueue& srq() { return *srq_; }
  int tag_memory() const { return tag_memory_.get(); }

 private:
  static inline uint32_t last_tag_handle_ = 0;
  dataplane::SharedReceiveQueue* srq_ = nullptr;
  Mapping memory_;
  dataplane::Fd tag_memory_;
};

// The memory of node a is mapped, that of node b is accessed by system calls.
class StalledQueuePair : public ::testing::Test {
 protected:
  StalledQueuePair()
      : a_(TestDataplane(), &wire_, Config(1, false)),
        b_(TestDataplane(), &wire_, Config(2, true)),
        a_cq_(a_.client(), 4096),
        b_cq_(b_.client(), 4096) {}

  void SetUp() override {
    first_ = std::make_unique<WaitingMemory>(b_.memory() + kFirstAt, kWaitingBytes);
    second_ = std::make_unique<WaitingMemory>(b_.memory() + kSecondAt, kWaitingBytes);
    if (!first_->works() || !second_->works()) {
      GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
    }
  }

  static Node::Config Config(uint32_t number, bool process_vm) {
    Node::Config config;
    config.number = number;
    config.process_vm = process_vm;
    return config;
  }
  static dataplane::QueuePairConfig QpConfig(AppCq& cq, roce::QpType type = roce::QpType::kRc) {
    dataplane::QueuePairConfig config;
    config.type = type;
    config.pd = Node::kPd;
    config.send_cq = config.recv_cq = cq.cq();
    config.max_send_wr = 64;
    config.max_recv_wr = 256;
    return config;
  }
  void ConnectBoth(AppQp& a, AppQp& b) {
    const ConnectOptions options{.timeout = 19};
    ASSERT_EQ(Connect(a_, a, b_, b.qp().qpn(), options), roce::ModifyResult::kOk);
    ASSERT_EQ(Connect(b_, b, a_, a.qp().qpn(), options), roce::ModifyResult::kOk);
  }
  // To RESET and back, with the former PSNs.
  void ConnectAnew(AppQp& a, AppQp& b) {
    ASSERT_EQ(MoveTo(a_, a, roce::QpState::kReset), roce::ModifyResult::kOk);
    ASSERT_EQ(MoveTo(b_, b, roce::QpState::kReset), roce::ModifyResult::kOk);
    a.Forget();
    b.Forget();
    ConnectBoth(a, b);
  }
  static void Post(AppQp& qp, roci_abi_send_opcode opcode, uint64_t wr_id, const roci_abi_sge& sge,
                   uint64_t remote_va = 0, uint32_t rkey = 0) {
    SendRequest request;
    request.head.opcode = static_cast<uint8_t>(opcode);
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.wr_id = wr_id;
    request.head.remote_va = remote_va;
    request.head.rkey = rkey;
    request.sges = {sge};
    qp.Post(request);
    qp.Ring();
  }
  void Send(AppQp& from, uint64_t wr_id = 1) {
    Post(from, ROCI_ABI_WR_SEND, wr_id, a_.Sge(0, kBytes));
  }
  void PostRecvs(AppQp& qp, uint64_t wr_id, int count, size_t offset) {
    for (int i = 0; i < count; ++i) {
      qp.PostRecv(wr_id + static_cast<uint64_t>(i), {b_.Sge(offset, kBytes)});
    }
    qp.Ring();
  }
  // What was posted has arrived.
  void PassRounds() {
    for (int i = 0; i < 8; ++i) b_.lcore().FinishRound();
  }
  void AwaitStall() {
    for (int i = 0; i < 5000 && !b_.client().IsStalled(); ++i) usleep(1000);
    ASSERT_TRUE(b_.client().IsStalled());
    PassRounds();
  }
  void AwaitEndOfStall() {
    for (int i = 0; i < 5000 && b_.client().IsStalled(); ++i) usleep(1000);
    ASSERT_FALSE(b_.client().IsStalled());
    PassRounds();
  }
  static void Expect(AppCq& cq, uint64_t wr_id,
                     roce::CompletionStatus status = roce::CompletionStatus::kSuccess) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(cq.Wait(&cqe)) << "instead of " << wr_id;
    EXPECT_EQ(cqe.wr_id, wr_id);
    EXPECT_EQ(cqe.status, Value(status)) << "of " << wr_id;
  }
  static void ExpectQuiet(AppCq& cq) {
    roci_abi_cqe cqe;
    EXPECT_FALSE(cq.Poll(&cqe)) << cqe.wr_id << " completes with " << int{cqe.status};
  }

  dataplane::Wire wire_{TestDataplane()};
  Node a_;
  Node b_;
  AppCq a_cq_;
  AppCq b_cq_;
  std::unique_ptr<WaitingMemory> first_;
  std::unique_ptr<WaitingMemory> second_;
};

}  // namespace roci::testing
