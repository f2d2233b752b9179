// Queue pairs that are reset, fail or are destroyed while copies for them are stalled: later
// completions and frames are in order, and none belongs to the time before the reset.
#include "tests/unit/dataplane/shard/stalled_queue_pair.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/shard/pending_releases.h"
#include "memory/mapped_file.h"

namespace roci::testing {
namespace {

using roce::CompletionStatus;
using roce::QpState;

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
  b_.client().Do(dataplane::DestroyQueuePair{b.qp()});
  EXPECT_TRUE(b_.client().HasUnfinishedCopies());
  EXPECT_FALSE(a_.client().HasUnfinishedCopies());
  first_->Serve(std::byte{1});
  for (int i = 0; i < 5000 && b_.client().HasUnfinishedCopies(); ++i) usleep(1000);
  ASSERT_FALSE(b_.client().HasUnfinishedCopies());
  EXPECT_EQ(b_.memory()[kFirstAt], std::byte{0x5A}) << "the copy has not ended";
}

// A copy that has begun through a window or a list region is not stopped when its key is destroyed.
TEST_F(StalledQueuePair, CopiesAreKnownWhenAWindowOrAListGoes) {
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  const auto [status, window] =
      b_.client().Do(dataplane::AllocateWindow{Node::kPd, memory::WindowType::kType2});
  ASSERT_EQ(status, memory::MemoryStatus::kOk);
  const auto list = b_.client().Do(dataplane::CreateList{Node::kPd, {.max_runs = 4}});
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
      b_.client().Do(dataplane::DestroyList{list->key >> 8});
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
    return b_.lcore().Call(
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
  b_.client().Do(dataplane::DestroyQueuePair{b.qp()});
  EXPECT_EQ(posted(), AppSrq::kSlots - 3);
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

// The control thread frees the mappings that a copy may still use, some at a time, and the lcore
// none.
TEST_F(StalledQueuePair, TheLcoreFreesNoMappings) {
  constexpr uint32_t kRegions = 3 * dataplane::PendingReleases::kMostInCall;
  // What earlier tests have left comes first.
  for (int i = 0; i < 5000 && TestDataplane().HasReleases(); ++i) {
    TestDataplane().ReleaseSome();
    usleep(1000);
  }
  AppQp a(a_.client(), QpConfig(a_cq_));
  AppQp b(b_.client(), QpConfig(b_cq_));
  ConnectBoth(a, b);
  auto memory = dataplane::SharedMemory::Create("test-regions", 4096);
  ASSERT_TRUE(memory.ok());
  std::vector<std::weak_ptr<memory::MappedFile>> mappings;
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < kRegions; ++i) {
    int error = 0;
    const uint64_t va = (uint64_t{1} << 40) + uint64_t{i} * 4096;
    const auto mapping = memory::MappedFile::Map(memory->fd(), 0, 4096, true, &error);
    ASSERT_NE(mapping, nullptr) << error;
    mappings.push_back(mapping);
    memory::Translation translation{
        .va = va, .length = 4096, .iova = va, .extents = {{va, 4096, mapping, 0}}, .app = nullptr};
    const auto registered = b_.client().Do(
        dataplane::RegisterRegion{Node::kPd, memory::Access::kLocalWrite, std::move(translation)});
    ASSERT_EQ(registered.status, memory::MemoryStatus::kOk);
    keys.push_back(registered.key);
  }
  const auto count_alive = [&] {
    return static_cast<size_t>(std::count_if(mappings.begin(), mappings.end(),
                                             [](const auto& each) { return !each.expired(); }));
  };
  PostRecvs(b, 1, 1, kFirstAt);
  Send(a);
  AwaitStall();
  for (const uint32_t key : keys) {
    ASSERT_EQ(b_.client().Do(dataplane::DeregisterRegion{key}), memory::MemoryStatus::kOk);
  }
  TestDataplane().ReleaseSome();
  EXPECT_EQ(count_alive(), kRegions) << "the copy has not ended";
  first_->Serve(std::byte{1});
  AwaitEndOfStall();
  Expect(b_cq_, 1);
  size_t alive = count_alive();
  EXPECT_EQ(alive, kRegions);
  EXPECT_TRUE(TestDataplane().HasReleases());
  for (int calls = 0; alive != 0 && calls < 100; ++calls) {
    TestDataplane().ReleaseSome();
    const size_t now = count_alive();
    EXPECT_LE(alive - now, dataplane::PendingReleases::kMostInCall);
    alive = now;
  }
  EXPECT_EQ(alive, 0U);
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
  const auto to_a = b_.client().Do(dataplane::CreateAddressHandle{Node::kPd, PathTo(b_, a_)});
  const auto to_b = a_.client().Do(dataplane::CreateAddressHandle{Node::kPd, PathTo(a_, b_)});
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
  ASSERT_EQ(b.Inspect().state, QpState::kSqe);
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

}  // namespace
}  // namespace roci::testing
