// Requests that fail: wrong keys, memory that is gone, full completion queues, a dead peer, and
// rings with impossible contents.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "dataplane/base/clock.h"
#include "dataplane/shard/lcore.h"
#include "tests/unit/dataplane/shard/traffic.h"

namespace roci::testing {
namespace {

TEST_P(Traffic, WrongRemoteKeyEndsInAnError) {
  auto pair = MakePair(roce::QpType::kRc);
  SendRequest request = ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 64)}), 0);
  request.head.rkey ^= 0x100;
  pair->a.Post(request);
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kRemoteAccessError));
  // Sends and receives posted to a QP in ERR are flushed.
  pair->a.Post(Request(ROCI_ABI_WR_SEND, 2, {a_.Sge(0, 64)}));
  pair->a.PostRecv(3, {a_.Sge(0, 64)});
  pair->a.Ring();
  uint64_t seen = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kWorkRequestFlushed));
    seen += cqe.wr_id;
  }
  EXPECT_EQ(seen, 5u);
}

TEST_P(Traffic, WrongLocalKeyEndsInAnErrorAndTheQpCanBeUsedAgain) {
  auto pair = MakePair(roce::QpType::kRc);
  SendRequest request = ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 64)}), 0);
  request.sges[0].lkey ^= 0x100;
  pair->a.Post(request);
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kLocalProtectionError));
  ASSERT_EQ(MoveTo(a_, pair->a, roce::QpState::kReset), roce::ModifyResult::kOk);
  ASSERT_EQ(MoveTo(b_, pair->b, roce::QpState::kReset), roce::ModifyResult::kOk);
  pair->a.Forget();
  pair->b.Forget();
  ASSERT_EQ(Connect(a_, pair->a, b_, pair->b.qp().qpn()), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(b_, pair->b, a_, pair->a.qp().qpn()), roce::ModifyResult::kOk);
  Fill(a_, 0, 64, 9);
  Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 5, {a_.Sge(0, 64)}), 0));
  EXPECT_EQ(std::memcmp(a_.memory(), b_.memory(), 64), 0);
}

TEST_P(Traffic, AFaultOfCompletionsFailsOneRequestAndFlushesThoseBehindIt) {
  auto victim = MakePair(roce::QpType::kRc);
  auto other = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set(static_cast<size_t>(roce::CompletionOpcode::kRdmaWrite));
  settings.qpns = {victim->a.qp().qpn()};
  settings.status = roce::CompletionStatus::kRemoteOperationError;
  settings.when.nth = 2;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  const auto write = [&](uint64_t id) {
    return ToB(Request(ROCI_ABI_WR_RDMA_WRITE, id, {a_.Sge(0, 64)}), 0);
  };
  Complete(other->a, write(1));
  Complete(other->a, write(2));
  Complete(victim->a, write(3));
  for (const uint64_t id : {4, 5}) victim->a.Post(write(id));
  victim->a.Ring();
  for (const auto& [id, status] : {std::pair(4u, roce::CompletionStatus::kRemoteOperationError),
                                   std::pair(5u, roce::CompletionStatus::kWorkRequestFlushed)}) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.wr_id, id);
    EXPECT_EQ(cqe.status, static_cast<uint8_t>(status));
    EXPECT_NE(cqe.vendor_error, 0u);
  }
  EXPECT_EQ(victim->a.Inspect().state, roce::QpState::kErr);
  Complete(other->a, write(6));
  const auto states = a_.device().Do(dataplane::ListCompletionFaults{});
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].hit, 1u);
  EXPECT_TRUE(a_.device().Do(dataplane::RemoveCompletionFault{states[0].id}));
  EXPECT_FALSE(a_.device().Do(dataplane::RemoveCompletionFault{states[0].id}));
}

TEST_P(Traffic, NothingSucceedsBehindAFaultOfCompletions) {
  auto pair = MakePair(roce::QpType::kUc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set(static_cast<size_t>(roce::CompletionOpcode::kRdmaWrite));
  settings.status = roce::CompletionStatus::kGeneralError;
  settings.when.times = 1;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  for (const uint64_t id : {1, 2, 3, 4}) {
    pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, id, {a_.Sge(0, 64)}), 0));
  }
  pair->a.Ring();
  for (const uint64_t id : {1, 2, 3, 4}) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.wr_id, id);
    const auto expected = id == 1 ? roce::CompletionStatus::kGeneralError
                                  : roce::CompletionStatus::kWorkRequestFlushed;
    EXPECT_EQ(cqe.status, static_cast<uint8_t>(expected)) << id;
  }
  EXPECT_TRUE(a_.device().Do(
      dataplane::RemoveCompletionFault{a_.device().Do(dataplane::ListCompletionFaults{})[0].id}));
}

TEST_P(Traffic, AFaultOfCompletionsDelaysThoseBehindItToo) {
  constexpr uint64_t kDelayNs = 30'000'000;
  auto pair = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set();
  settings.delay_ns = kDelayNs;
  settings.when.nth = 2;
  settings.when.times = 1;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  const auto write = [&](uint64_t id) {
    return ToB(Request(ROCI_ABI_WR_RDMA_WRITE, id, {a_.Sge(0, 64)}), 0);
  };
  Complete(pair->a, write(1));
  const uint64_t began = dataplane::Clock::Monotonic();
  for (const uint64_t id : {2, 3, 4}) pair->a.Post(write(id));
  pair->a.Ring();
  for (const uint64_t id : {2, 3, 4}) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.wr_id, id);
    EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kSuccess));
    EXPECT_GE(dataplane::Clock::Monotonic() - began, kDelayNs);
  }
  // The queue goes on as before, and one that is stalled can be destroyed.
  Complete(pair->a, write(5));
  EXPECT_TRUE(a_.device().Do(
      dataplane::RemoveCompletionFault{a_.device().Do(dataplane::ListCompletionFaults{})[0].id}));
  settings.when = {};
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  pair->a.Post(write(6));
  pair->a.Ring();
}

// The program's next queue would take a later one for its own.
TEST_P(Traffic, ADelayedCompletionIsThereBeforeItsQueuePairBeginsAnew) {
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set();
  settings.delay_ns = 5'000'000'000;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  for (const bool resets : {true, false}) {
    auto pair = MakePair(roce::QpType::kRc);
    const uint64_t before = a_.device().Do(dataplane::ListCompletionFaults{})[0].hit;
    pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 64)}), 0));
    pair->a.Ring();
    while (a_.device().Do(dataplane::ListCompletionFaults{})[0].hit == before) sched_yield();
    roci_abi_cqe cqe;
    EXPECT_FALSE(a_cq_.Poll(&cqe));
    if (resets) {
      ASSERT_EQ(MoveTo(a_, pair->a, roce::QpState::kReset), roce::ModifyResult::kOk);
    } else {
      a_.client().Do(dataplane::DestroyQueuePair{pair->a.qp()});
    }
    EXPECT_TRUE(a_cq_.Poll(&cqe)) << resets;
    EXPECT_FALSE(a_cq_.Poll(&cqe)) << resets;
  }
}

TEST_P(Traffic, AFaultOfCompletionsChoosesTheVendorError) {
  auto pair = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set();
  settings.status = roce::CompletionStatus::kFatal;
  settings.vendor_error = 0x77;
  settings.when.nth = 2;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  for (const uint64_t id : {1, 2}) {
    pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, id, {a_.Sge(0, 64)}), 0));
  }
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.vendor_error, 0u);
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.vendor_error, 0x77u);
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kFatal));
}

TEST_P(Traffic, AFaultOfCompletionsOverflowsTheQueue) {
  auto pair = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set();
  settings.overflows = true;
  settings.when.nth = 2;
  ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  for (const uint64_t id : {1, 2, 3}) {
    pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, id, {a_.Sge(0, 64)}), 0));
  }
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 1u);
  EXPECT_FALSE(a_cq_.Wait(&cqe, 20));
  EXPECT_TRUE(a_cq_.cq()->overflowed());
}

TEST_P(Traffic, AFaultOfCompletionsGoesWithItsQueuePair) {
  auto pair = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set(static_cast<size_t>(roce::CompletionOpcode::kSend));
  settings.qpns = {pair->a.qp().qpn()};
  for (size_t i = 0; i < dataplane::AddCompletionFault::kMost; ++i) {
    ASSERT_TRUE(a_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  }
  EXPECT_TRUE(
      absl::IsResourceExhausted(a_.device().Do(dataplane::AddCompletionFault{settings}).status()));
  a_.client().Do(dataplane::DestroyQueuePair{pair->a.qp()});
  EXPECT_TRUE(a_.device().Do(dataplane::ListCompletionFaults{}).empty());
  auto next = MakePair(roce::QpType::kRc);
  Complete(next->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 64)}), 0));
}

TEST_P(Traffic, AFaultOfReceivesLeavesTheSenderGood) {
  auto pair = MakePair(roce::QpType::kRc);
  dataplane::CompletionFaultSettings settings;
  settings.opcodes.set(static_cast<size_t>(roce::CompletionOpcode::kRecv));
  settings.status = roce::CompletionStatus::kLocalProtectionError;
  ASSERT_TRUE(b_.device().Do(dataplane::AddCompletionFault{settings}).ok());
  for (const uint64_t id : {1, 2}) pair->b.PostRecv(id, {b_.Sge(0, 64)});
  pair->b.Ring();
  Complete(pair->a, Request(ROCI_ABI_WR_SEND, 3, {a_.Sge(0, 64)}));
  for (const auto& [id, status] : {std::pair(1u, roce::CompletionStatus::kLocalProtectionError),
                                   std::pair(2u, roce::CompletionStatus::kWorkRequestFlushed)}) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(b_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.wr_id, id);
    EXPECT_EQ(cqe.status, static_cast<uint8_t>(status));
  }
  EXPECT_EQ(pair->b.Inspect().state, roce::QpState::kErr);
  EXPECT_TRUE(b_.device().Do(
      dataplane::RemoveCompletionFault{b_.device().Do(dataplane::ListCompletionFaults{})[0].id}));
}

TEST_P(Traffic, AnImpossibleProducerIndexIsFatalForTheQpAlone) {
  auto victim = MakePair(roce::QpType::kRc);
  auto other = MakePair(roce::QpType::kRc);
  victim->a.set_send_producer(1'000'000);
  victim->a.Ring();
  roci_abi_async_event event{};
  for (int i = 0; i < 5000 && read(a_.async_socket(), &event, sizeof(event)) < 0; ++i) usleep(1000);
  EXPECT_EQ(event.element, 0xABCu);
  EXPECT_EQ(event.type, 1u);  // IBV_EVENT_QP_FATAL
  EXPECT_EQ(victim->a.qp().async_events(), 1u);
  EXPECT_EQ(victim->a.Inspect().state, roce::QpState::kErr);
  Complete(other->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 5, {a_.Sge(0, 64)}), 0));
}

TEST_P(Traffic, DoorbellsOfUnknownHandlesAreCounted) {
  Mapping page(a_.client().doorbell_fd(), a_.client().doorbell_bytes());
  const auto before = a_.lcore().Snapshot().bad_doorbells;
  // From the bottom level up, as a program rings, because the lcore may collect at any time.
  auto* bells = reinterpret_cast<roci_abi_doorbells*>(page.data());
  std::memset(bells->level0, 0xFF, sizeof(bells->level0));
  std::memset(bells->level1, 0xFF, sizeof(bells->level1));
  std::atomic_ref(bells->level2).store(~uint64_t{0}, std::memory_order_release);
  auto pair = MakePair(roce::QpType::kRc);
  Complete(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 5, {a_.Sge(0, 64)}), 0));
  for (int i = 0; i < 5000 && a_.lcore().Snapshot().bad_doorbells - before < 65000; ++i) {
    usleep(1000);
  }
  EXPECT_GE(a_.lcore().Snapshot().bad_doorbells - before, 65000u);
}

TEST_P(Traffic, ACompletionQueueOverflowMovesItsQueuePairsToErr) {
  auto bystander = MakePair(roce::QpType::kRc);
  AppCq small(a_.client(), 4);
  AppQp user(a_.client(), QpConfig(small, roce::QpType::kRc));
  AppQp peer(b_.client(), QpConfig(b_cq_, roce::QpType::kRc));
  ASSERT_EQ(Connect(a_, user, b_, peer.qp().qpn()), roce::ModifyResult::kOk);
  ASSERT_EQ(Connect(b_, peer, a_, user.qp().qpn()), roce::ModifyResult::kOk);
  dataplane::QueuePairConfig config = QpConfig(a_cq_, roce::QpType::kUd);
  config.recv_cq = small.cq();
  config.user_handle = 0xDEF;
  AppQp idle(a_.client(), config);
  ASSERT_EQ(ConnectUd(a_, idle), roce::ModifyResult::kOk);
  for (uint64_t i = 0; i < 8; ++i) {
    user.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, i, {a_.Sge(0, 64)}), 0));
  }
  user.Ring();
  std::multiset<std::pair<uint64_t, uint32_t>> events;
  for (int i = 0; i < 5000 && events.size() < 3; ++i) {
    roci_abi_async_event event{};
    if (read(a_.async_socket(), &event, sizeof(event)) != ssize_t{sizeof(event)}) {
      usleep(1000);
    } else {
      events.insert({event.element, event.type});
    }
  }
  const std::multiset<std::pair<uint64_t, uint32_t>> wanted = {
      {0, 0}, {0xABC, 1}, {0xDEF, 1}};  // IBV_EVENT_CQ_ERR, twice IBV_EVENT_QP_FATAL
  EXPECT_EQ(events, wanted);
  EXPECT_EQ(user.Inspect().state, roce::QpState::kErr);
  EXPECT_EQ(idle.Inspect().state, roce::QpState::kErr);
  roci_abi_cqe cqe;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(small.Wait(&cqe));
  EXPECT_FALSE(small.Poll(&cqe));
  Complete(bystander->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 5, {a_.Sge(0, 64)}), 0));
}

TEST_P(Traffic, ADeadPeerIsDetected) {
  ConnectOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_count = 2;
  auto pair = MakePair(roce::QpType::kRc, options);
  ASSERT_EQ(MoveTo(b_, pair->b, roce::QpState::kReset), roce::ModifyResult::kOk);
  pair->a.Post(Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 100)}));
  pair->a.Ring();
  roci_abi_cqe cqe;
  ASSERT_TRUE(a_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kRetryExceeded));
}

// Memory that is unmapped after registration: the side that accesses it gets the error.
class VanishedMemory : public Traffic {
 protected:
  static constexpr size_t kHole = 512 * 1024;
  void Vanish(Node& node) { ASSERT_EQ(mprotect(node.memory() + kHole, kHole, PROT_NONE), 0); }
  void TearDown() override {
    mprotect(a_.memory() + kHole, kHole, PROT_READ | PROT_WRITE);
    mprotect(b_.memory() + kHole, kHole, PROT_READ | PROT_WRITE);
  }
  roce::CompletionStatus StatusOf(AppQp& qp, const SendRequest& request) {
    qp.Post(request);
    qp.Ring();
    roci_abi_cqe cqe{};
    EXPECT_TRUE(a_cq_.Wait(&cqe));
    return static_cast<roce::CompletionStatus>(cqe.status);
  }
};

TEST_P(VanishedMemory, AsTheSourceOfAWrite) {
  auto pair = MakePair(roce::QpType::kRc);
  auto other = MakePair(roce::QpType::kRc);
  Vanish(a_);
  EXPECT_EQ(StatusOf(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(kHole, 9000)}), 0)),
            roce::CompletionStatus::kLocalProtectionError);
  Complete(other->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 2, {a_.Sge(0, 9000)}), 0));
}

TEST_P(VanishedMemory, AsTheTargetOfARead) {
  auto pair = MakePair(roce::QpType::kRc);
  Vanish(a_);
  EXPECT_EQ(StatusOf(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_READ, 1, {a_.Sge(kHole, 9000)}), 0)),
            roce::CompletionStatus::kLocalProtectionError);
}

// More than one burst: the fault is known while the message is still being transferred.
TEST_P(VanishedMemory, AsTheTargetOfALongRead) {
  auto pair = MakePair(roce::QpType::kRc);
  Vanish(a_);
  EXPECT_EQ(
      StatusOf(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_READ, 1, {a_.Sge(kHole, 256 * 1024)}), 0)),
      roce::CompletionStatus::kLocalProtectionError);
  // A local error is not reported as an access violation of the peer.
  roci_abi_async_event event{};
  EXPECT_EQ(read(a_.async_socket(), &event, sizeof(event)), -1);
}

TEST_P(VanishedMemory, AsTheTargetOfALongSend) {
  auto pair = MakePair(roce::QpType::kRc);
  Vanish(b_);
  pair->b.PostRecv(4, {b_.Sge(kHole, 256 * 1024)});
  pair->b.PostRecv(5, {b_.Sge(0, 100)});
  pair->b.Ring();
  EXPECT_EQ(StatusOf(pair->a, Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 256 * 1024)})),
            roce::CompletionStatus::kRemoteOperationError);
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 4u);
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kLocalProtectionError));
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 5u);
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kWorkRequestFlushed));
}

TEST_P(VanishedMemory, AsTheSourceOfARead) {
  auto pair = MakePair(roce::QpType::kRc);
  Vanish(b_);
  EXPECT_EQ(StatusOf(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_READ, 1, {a_.Sge(0, 9000)}), kHole)),
            roce::CompletionStatus::kRemoteOperationError);
}

TEST_P(VanishedMemory, AsTheTargetOfAWrite) {
  auto pair = MakePair(roce::QpType::kRc);
  auto other = MakePair(roce::QpType::kRc);
  Vanish(b_);
  EXPECT_EQ(StatusOf(pair->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 9000)}), kHole)),
            roce::CompletionStatus::kRemoteOperationError);
  EXPECT_EQ(pair->b.Inspect().state, roce::QpState::kErr);
  roci_abi_async_event event{};
  ASSERT_EQ(read(b_.async_socket(), &event, sizeof(event)), ssize_t{sizeof(event)});
  EXPECT_EQ(event.type, 3u);  // IBV_EVENT_QP_ACCESS_ERR
  Complete(other->a, ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 2, {a_.Sge(0, 9000)}), 0));
}

TEST_P(VanishedMemory, AsTheTargetOfASend) {
  auto pair = MakePair(roce::QpType::kRc);
  Vanish(b_);
  pair->b.PostRecv(4, {b_.Sge(kHole, 100)});
  pair->b.Ring();
  EXPECT_EQ(StatusOf(pair->a, Request(ROCI_ABI_WR_SEND, 1, {a_.Sge(0, 50)})),
            roce::CompletionStatus::kRemoteOperationError);
  roci_abi_cqe cqe;
  ASSERT_TRUE(b_cq_.Wait(&cqe));
  EXPECT_EQ(cqe.wr_id, 4u);
  EXPECT_EQ(cqe.status, static_cast<uint8_t>(roce::CompletionStatus::kLocalProtectionError));
}

INSTANTIATE_TEST_SUITE_P(Layouts, VanishedMemory,
                         ::testing::Values(Layout{0, 0, true}, Layout{1, 0, true}), LayoutName);

}  // namespace
}  // namespace roci::testing
