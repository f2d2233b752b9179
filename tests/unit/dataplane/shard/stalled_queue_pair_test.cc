// Queue pairs that are reset, fail or are destroyed while copies for them are stalled: later
// completions and frames are in order, and none belongs to the time before the reset.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/xrc_domain.h"
#include "roce/tag_header.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "tests/unit/dataplane/waiting_memory.h"
#include "verbs_provider/abi/session.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::testing {
namespace {

using roce::CompletionStatus;
using roce::QpState;

constexpr uint32_t kBytes = 64;
// Parts of the memory of the node whose memory blocks.
constexpr size_t kFirstAt = 512 << 10;
constexpr size_t kSecondAt = 768 << 10;
constexpr size_t kWaitingBytes = 128 << 10;

constexpr uint8_t Value(CompletionStatus status) { return static_cast<uint8_t>(status); }

// A shared receive queue of `node`. Slot i receives to `offset` of its memory with wr_id 100 + i.
class AppSrq {
 public:
  static constexpr uint32_t kSlots = 4;
  AppSrq(Node& node, size_t offset, dataplane::XrcDomain* domain, dataplane::CompletionQueue* cq,
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
    auto created = node.client().CreateSharedReceiveQueue(config, handle);
    EXPECT_TRUE(created.ok());
    srq_ = created->queue;
    const roci_abi_srq_layout& layout = srq_->layout();
    memory_ = Mapping(created->memory.get(), layout.memory_size);
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

 private:
  static inline uint32_t last_tag_handle_ = 0;
  dataplane::SharedReceiveQueue* srq_ = nullptr;
  Mapping memory_;
};

// A shared receive queue with tag matching.
class AppTagSrq : public AppSrq {
 public:
  AppTagSrq(Node& node, size_t offset, AppCq& cq)
      : AppSrq(node, offset, nullptr, cq.cq(), kTags), node_(node) {
    dataplane::Fd fd = tags().TakeFd();
    ops_ = Mapping(fd.get(), tags().layout().memory_size);
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
    return node_.client().lcore().Call([&](const dataplane::OnShard&) {
      tags().Serve(0);
      return tags().list().size();
    });
  }
  // Unexpected messages that were not reported to the program are not counted.
  bool in_sync() {
    return node_.client().lcore().Call(
        [&](const dataplane::OnShard&) { return tags().list().in_sync(); });
  }

 private:
  static constexpr uint32_t kTags = 8;
  dataplane::TagQueue& tags() { return *srq().tags(); }
  Node& node_;
  Mapping ops_;
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
    ASSERT_EQ(MoveTo(a_, a, QpState::kReset), roce::ModifyResult::kOk);
    ASSERT_EQ(MoveTo(b_, b, QpState::kReset), roce::ModifyResult::kOk);
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
    for (int i = 0; i < 8; ++i) b_.client().lcore().FinishRound();
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
                     CompletionStatus status = CompletionStatus::kSuccess) {
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

TEST_F(StalledQueuePair, ResetForgetsReceives) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  PostRecvs(b, 100, 8, kFirstAt);
  Send(a);
  AwaitStall();
  // These messages wait at the stalled queue pair.
  for (int i = 0; i < 3; ++i) Send(a);
  PassRounds();
  ConnectAnew(a, b);
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
  PostRecvs(b, 200, 4, 0);
  for (uint64_t i = 0; i < 4; ++i) Send(a, 300 + i);
  for (uint64_t i = 0; i < 4; ++i) {
    Expect(b_cq_, 200 + i);
    Expect(a_cq_, 300 + i);
  }
  ExpectQuiet(b_cq_);
}

TEST_F(StalledQueuePair, ResetDropsReadData) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  Post(b, ROCI_ABI_WR_RDMA_READ, 1, b_.Sge(kFirstAt, kBytes), a_.va(), a_.key());
  AwaitStall();
  ConnectAnew(a, b);
  Post(b, ROCI_ABI_WR_RDMA_READ, 2, b_.Sge(0, kBytes), a_.va(), a_.key());
  PassRounds();
  first_->Serve(std::byte{1});
  Expect(b_cq_, 2);
  ExpectQuiet(b_cq_);
}

// The program may reuse the memory as soon as destroying the queue pair has been answered.
TEST_F(StalledQueuePair, CopiesOfADestroyedQueuePairAreTrackedUntilTheyEnd) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  std::memset(a_.memory(), 0x5A, kBytes);
  PostRecvs(b, 100, 1, kFirstAt);
  Send(a);
  AwaitStall();
  EXPECT_FALSE(b_.client().HasUnfinishedCopies()) << "nothing has changed yet";
  b_.client().DestroyQueuePair(b.qp());
  EXPECT_TRUE(b_.client().HasUnfinishedCopies());
  EXPECT_FALSE(a_.client().HasUnfinishedCopies());
  first_->Serve(std::byte{1});
  for (int i = 0; i < 5000 && b_.client().HasUnfinishedCopies(); ++i) usleep(1000);
  ASSERT_FALSE(b_.client().HasUnfinishedCopies());
  EXPECT_EQ(b_.memory()[kFirstAt], std::byte{0x5A}) << "the copy has not ended";
}

// Copies through a window or a list region go on when its key has gone.
TEST_F(StalledQueuePair, CopiesAreKnownWhenAWindowOrAListGoes) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  const auto [status, window] =
      b_.client().Do(dataplane::AllocateWindow{Node::kPd, memory::WindowType::kType2});
  ASSERT_EQ(status, memory::MemoryStatus::kOk);
  const auto list = b_.client().CreateList(Node::kPd, {.max_runs = 4});
  ASSERT_TRUE(list.ok());
  for (const bool is_window : {true, false}) {
    SCOPED_TRACE(is_window);
    PostRecvs(b, 100, 1, is_window ? kFirstAt : kSecondAt);
    Send(a);
    AwaitStall();
    EXPECT_FALSE(b_.client().HasUnfinishedCopies()) << "nothing has changed yet";
    if (is_window) {
      EXPECT_EQ(b_.client().Do(dataplane::DeallocateWindow{window >> 8}),
                memory::MemoryStatus::kOk);
    } else {
      b_.client().DestroyList(list->key >> 8);
    }
    EXPECT_TRUE(b_.client().HasUnfinishedCopies());
    (is_window ? first_ : second_)->Serve(std::byte{1});
    AwaitEndOfStall();
    EXPECT_FALSE(b_.client().HasUnfinishedCopies());
  }
}

TEST_F(StalledQueuePair, NothingIsWrittenAfterReset) {
  constexpr int kRounds = 200;
  constexpr int kSends = 8;
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  std::memset(a_.memory(), 0x5A, kBytes);
  int stalled = 0;
  for (int round = 0; round < kRounds; ++round) {
    PostRecvs(b, 100, kSends, 0);
    for (int i = 0; i < kSends; ++i) Send(a);
    usleep(static_cast<useconds_t>(round % 20));
    ASSERT_EQ(MoveTo(b_, b, QpState::kReset), roce::ModifyResult::kOk);
    if (b_.client().HasUnfinishedCopies()) ++stalled;
    while (b_.client().HasUnfinishedCopies()) usleep(100);
    std::memset(b_.memory(), 0x11, kBytes);
    PassRounds();
    for (uint32_t i = 0; i < kBytes; ++i) ASSERT_EQ(b_.memory()[i], std::byte{0x11}) << round;
    ConnectAnew(a, b);
    roci_abi_cqe cqe;
    while (a_cq_.Poll(&cqe) || b_cq_.Poll(&cqe)) continue;
  }
  EXPECT_LT(stalled, kRounds / 2) << "ordinary copies are waited for by the call itself";
}

// The peer would accept the old frames as new ones, which have the same PSNs.
TEST_F(StalledQueuePair, ResetDropsItsFrames) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  Post(b, ROCI_ABI_WR_SEND, 1, b_.Sge(kFirstAt, kBytes));
  AwaitStall();
  ConnectAnew(a, b);
  a.PostRecv(200, {a_.Sge(0, kBytes)});
  a.Ring();
  Post(b, ROCI_ABI_WR_SEND, 2, b_.Sge(0, kBytes / 2));
  PassRounds();
  first_->Serve(std::byte{1});
  Expect(b_cq_, 2);
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 200u);
  EXPECT_EQ(cqe.byte_length, kBytes / 2);
}

TEST_F(StalledQueuePair, ResetForgetsAtomics) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  const uint64_t value = 5;
  std::memcpy(b_.memory(), &value, sizeof(value));
  Post(a, ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, 1, a_.Sge(64, 8), b_.va(kFirstAt), b_.key());
  AwaitStall();
  ConnectAnew(a, b);
  Post(a, ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, 2, a_.Sge(64, 8), b_.va(), b_.key());
  PassRounds();
  first_->Serve(std::byte{7});
  Expect(a_cq_, 2);
  uint64_t before = 0;
  std::memcpy(&before, a_.memory() + 64, sizeof(before));
  EXPECT_EQ(before, value);
}

// Failures from before the reset do not affect the queue pair afterwards.
TEST_F(StalledQueuePair, ResetForgetsFaults) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  PostRecvs(b, 100, 1, kFirstAt);
  Send(a);
  AwaitStall();
  ConnectAnew(a, b);
  first_->TakeAway();
  PostRecvs(b, 200, 1, 0);
  Send(a, 2);
  Expect(b_cq_, 200);
  Expect(a_cq_, 2);
  ExpectQuiet(b_cq_);
}

// Entries that were taken from a shared receive queue and not completed are available again.
TEST_F(StalledQueuePair, ReturnsUnreportedSharedReceives) {
  AppSrq srq(b_, kFirstAt, nullptr, nullptr);
  auto config = QpConfig(b_cq_);
  config.srq = &srq.srq();
  config.max_recv_wr = 0;
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), config);
  const auto posted = [&] {
    return b_.client().lcore().Call(
        [&](const dataplane::OnShard& shard) { return srq.srq().posted(shard); });
  };
  ConnectBoth(a, b);
  for (int i = 0; i < 3; ++i) Send(a);
  AwaitStall();
  EXPECT_LT(posted(), AppSrq::kSlots);
  ConnectAnew(a, b);
  EXPECT_EQ(posted(), AppSrq::kSlots);
  for (int i = 0; i < 3; ++i) Send(a);
  PassRounds();
  first_->Serve(std::byte{1});
  roci_abi_cqe cqe;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(b_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.status, 0u);
  }
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
  EXPECT_EQ(posted(), AppSrq::kSlots - 3);
  b_.client().DestroyQueuePair(b.qp());
  EXPECT_EQ(posted(), AppSrq::kSlots - 3);
}

// The program may destroy the shared receive queue of an XRC queue pair, and its completion queue.
TEST_F(StalledQueuePair, XrcReceiveQueueIsDestroyed) {
  dataplane::XrcDomain domain(b_.device(), b_.client().lcore());
  for (const bool with_cq : {false, true}) {
    SCOPED_TRACE(with_cq);
    AppCq cq(b_.client(), 16);
    AppSrq srq(b_, with_cq ? kSecondAt : kFirstAt, &domain, cq.cq());
    auto config = QpConfig(a_cq_, roce::QpType::kXrcSend);
    config.recv_cq = nullptr;
    config.max_recv_wr = 0;
    AppQp a(a_.client(), config);
    dataplane::QueuePairConfig target_config;
    target_config.type = roce::QpType::kXrcRecv;
    const auto target = domain.CreateTarget(target_config);
    ASSERT_TRUE(target.ok());
    const ConnectOptions options{.timeout = 19};
    ASSERT_EQ(Connect(b_, **target, a_, a.qp().qpn(), options), roce::ModifyResult::kOk);
    ASSERT_EQ(Connect(a_, a.qp(), b_, (*target)->qpn(), options), roce::ModifyResult::kOk);
    SendRequest request;
    request.head.opcode = ROCI_ABI_WR_SEND;
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.wr_id = with_cq;
    request.head.remote_srqn = srq.srq().number();
    request.sges = {a_.Sge(0, kBytes)};
    a.Post(request);
    a.Ring();
    AwaitStall();
    ASSERT_TRUE(b_.client().DestroySharedReceiveQueue(srq.srq()).ok());
    if (with_cq) {
      ASSERT_TRUE(b_.client().DestroyCompletionQueue(*cq.cq()).ok());
    }
    (with_cq ? second_ : first_)->Serve(std::byte{1});
    AwaitEndOfStall();
    Expect(a_cq_, with_cq);
    ExpectQuiet(cq);
  }
}

// More requests than one call flushes.
TEST_F(StalledQueuePair, ErrorFlushesManyInOrder) {
  constexpr int kPairs = 6;
  constexpr int kReceives = 200;
  AppQp opener_a(a_.client(), QpConfig(a_cq_));
  AppQp opener_b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(opener_a, opener_b);
  std::vector<std::unique_ptr<AppQp>> as;
  std::vector<std::unique_ptr<AppQp>> bs;
  for (int i = 0; i < kPairs; ++i) {
    as.push_back(std::make_unique<AppQp>(a_.client(), QpConfig(a_cq_)));
    bs.push_back(std::make_unique<AppQp>(b_.client(), QpConfig(b_cq_)));
    ConnectBoth(*as.back(), *bs.back());
    PostRecvs(*bs.back(), 0, kReceives, kSecondAt);
  }
  // Makes all queue pairs wait at the same time.
  PostRecvs(opener_b, 1000, 1, kFirstAt);
  Send(opener_a);
  AwaitStall();
  for (auto& a : as) Send(*a);
  PassRounds();
  first_->Serve(std::byte{1});
  Expect(b_cq_, 1000);
  AwaitStall();
  for (auto& b : bs) ASSERT_EQ(MoveTo(b_, *b, QpState::kErr), roce::ModifyResult::kOk);
  second_->Serve(std::byte{2});
  std::array<uint64_t, kPairs> next{};
  for (int i = 0; i < kPairs * kReceives; ++i) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe)) << i;
    int pair = 0;
    while (pair < kPairs && bs[pair]->qp().qpn().value() != cqe.qpn) ++pair;
    ASSERT_LT(pair, kPairs);
    ASSERT_EQ(cqe.wr_id, next[pair]) << "of pair " << pair;
    if (next[pair]++ > 0) {
      EXPECT_EQ(cqe.status, Value(CompletionStatus::kWorkRequestFlushed));
    }
  }
  AwaitEndOfStall();
  ExpectQuiet(b_cq_);
}

// UD: a send queue goes from SQE to RTS while it is being flushed and a received datagram is
// stalled.
TEST_F(StalledQueuePair, SendErrorFlushesManyInOrder) {
  constexpr uint64_t kSends = 1500;
  auto config = QpConfig(b_cq_, roce::QpType::kUd);
  config.max_send_wr = 2048;
  AppQp a(a_.client(), QpConfig(a_cq_, roce::QpType::kUd));
  AppQp b(b_.client(), config);
  ASSERT_EQ(ConnectUd(a_, a), roce::ModifyResult::kOk);
  ASSERT_EQ(ConnectUd(b_, b), roce::ModifyResult::kOk);
  const auto to_a = b_.client().CreateAddressHandle(Node::kPd, PathTo(b_, a_));
  const auto to_b = a_.client().CreateAddressHandle(Node::kPd, PathTo(a_, b_));
  ASSERT_TRUE(to_a.ok() && to_b.ok());
  SendRequest request;
  request.head.opcode = ROCI_ABI_WR_SEND;
  request.head.flags = ROCI_ABI_SEND_SIGNALED;
  request.head.u.ud = {*to_a, a.qp().qpn().value(), 0x1234, {}};
  for (uint64_t i = 0; i < kSends; ++i) {
    request.head.wr_id = i;
    request.sges = {b_.Sge(i == 0 ? kFirstAt : 0, kBytes)};
    b.Post(request);
  }
  b.PostRecv(kSends, {b_.Sge(kSecondAt, 2 * kBytes)});
  b.Ring();
  AwaitStall();
  request.head.u.ud = {*to_b, b.qp().qpn().value(), 0x1234, {}};
  request.sges = {a_.Sge(0, kBytes)};
  a.Post(request);
  a.Ring();
  PassRounds();
  // The first request cannot be sent. The datagram is next.
  first_->TakeAway();
  Expect(b_cq_, 0, CompletionStatus::kLocalProtectionError);
  AwaitStall();
  ASSERT_EQ(b_.client().InspectQueuePair(b.qp()).state, QpState::kSqe);
  ASSERT_EQ(MoveTo(b_, b, QpState::kRts), roce::ModifyResult::kOk);
  second_->Serve(std::byte{2});
  bool is_received = false;
  for (uint64_t next = 1; next < kSends || !is_received;) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe)) << next;
    if (cqe.wr_id == kSends) {
      is_received = true;
      EXPECT_EQ(cqe.status, 0u);
      continue;
    }
    ASSERT_EQ(cqe.wr_id, next++);
    EXPECT_EQ(cqe.status, Value(CompletionStatus::kWorkRequestFlushed));
  }
}

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
    return b_.client().lcore().Call(
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
    EXPECT_FALSE(b_.client().DestroySharedReceiveQueue(srq->srq()).ok()) << "it is in use";
    b_.client().DestroyQueuePair(b.qp());
    if (is_tagged) Expect(cq, 200, CompletionStatus::kWorkRequestFlushed);
    ExpectQuiet(cq);
    ASSERT_TRUE(b_.client().DestroySharedReceiveQueue(srq->srq()).ok());
    ASSERT_TRUE(b_.client().DestroyCompletionQueue(*cq.cq()).ok());
    (is_tagged ? second_ : first_)->Serve(std::byte{1});
    AwaitEndOfStall();
    a_.client().DestroyQueuePair(a.qp());
  }
  // They do not affect the remaining objects.
  ExpectGoesOn(0);
}

}  // namespace
}  // namespace roci::testing
