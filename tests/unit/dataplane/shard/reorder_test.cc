// Messages between two devices whose wire reorders and loses frames, with queue pairs that wait for
// late packets.
#include <unistd.h>

#include <cstring>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "roce/counters.h"
#include "tests/unit/dataplane/shard/traffic.h"

namespace roci::testing {
namespace {

using dataplane::ImpairmentSettings;

constexpr dataplane::Chance kPercent = dataplane::kAlways / 100;

class ReorderedTraffic : public Traffic {
 protected:
  // So long that a delayed thread gives up no frame that is only late.
  static constexpr uint32_t kWaitNs = 50'000'000;

  static dataplane::QueuePairConfig TolerantConfig(AppCq& cq) {
    dataplane::QueuePairConfig config = QpConfig(cq, roce::QpType::kRc);
    config.limits.reorder_wait_ns = kWaitNs;
    return config;
  }
  std::unique_ptr<Pair> MakeTolerantPair(const ConnectOptions& options = {}) {
    std::unique_ptr<Pair> pair(new Pair{AppQp(a_.client(), TolerantConfig(a_cq_)),
                                        AppQp(b_.client(), TolerantConfig(b_cq_))});
    EXPECT_EQ(Connect(a_, pair->a, b_, pair->b.qp().qpn(), options), roce::ModifyResult::kOk);
    EXPECT_EQ(Connect(b_, pair->b, a_, pair->a.qp().qpn(), options), roce::ModifyResult::kOk);
    return pair;
  }
  // Chances in percent.
  struct Faults {
    uint64_t loss = 0, duplicate = 0, reorder = 0, reorder_ns = 0;
    uint64_t seed;
  };
  void Impair(const Faults& faults) {
    ImpairmentSettings settings;
    settings.loss = faults.loss * kPercent;
    settings.duplicate = faults.duplicate * kPercent;
    settings.reorder = faults.reorder * kPercent;
    settings.reorder_ns = faults.reorder_ns;
    settings.seed = faults.seed;
    for (Node* node : {&a_, &b_})
      ASSERT_TRUE(node->device().Do(dataplane::SetImpairment{settings}).ok());
  }
  static uint64_t Count(Node& node, roce::QpCounter counter) {
    return node.device().Snapshot().qp[static_cast<size_t>(counter)];
  }
  // Posts WRITEs, SENDs and READs of 40,000 bytes and an atomic at once, and checks their results.
  void ExchangeAll(Pair& pair, uint32_t seed);
};

void ReorderedTraffic::ExchangeAll(Pair& pair, uint32_t seed) {
  constexpr uint32_t kBytes = 40000;
  constexpr size_t kTarget = 100000, kReceive = 200000, kFetched = 300000, kWord = 400000;
  Fill(a_, 0, kBytes, seed);
  std::memset(b_.memory(), 0, 300000);
  uint64_t before;
  std::memcpy(&before, b_.memory() + kWord, sizeof(before));
  pair.b.PostRecv(9, {b_.Sge(kReceive, kBytes)});
  pair.b.Ring();
  pair.a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, kBytes)}), kTarget));
  pair.a.Post(Request(ROCI_ABI_WR_SEND, 2, {a_.Sge(0, kBytes)}));
  pair.a.Post(ToB(Request(ROCI_ABI_WR_RDMA_READ, 3, {a_.Sge(kFetched, kBytes)}), kTarget));
  SendRequest add = ToB(Request(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, 4, {a_.Sge(kWord, 8)}), kWord);
  add.head.u.atomic.compare_add = seed;
  pair.a.Post(add);
  pair.a.Ring();
  for (uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe, 20000)) << wr_id;
    ASSERT_EQ(cqe.status, 0u) << wr_id;
    ASSERT_EQ(cqe.wr_id, wr_id);
  }
  roci_abi_cqe received;
  ASSERT_TRUE(b_cq_.Wait(&received));
  EXPECT_EQ(received.byte_length, kBytes);
  EXPECT_EQ(std::memcmp(b_.memory() + kTarget, a_.memory(), kBytes), 0);
  EXPECT_EQ(std::memcmp(b_.memory() + kReceive, a_.memory(), kBytes), 0);
  EXPECT_EQ(std::memcmp(a_.memory() + kFetched, a_.memory(), kBytes), 0);
  uint64_t fetched, after;
  std::memcpy(&fetched, a_.memory() + kWord, sizeof(fetched));
  std::memcpy(&after, b_.memory() + kWord, sizeof(after));
  EXPECT_EQ(fetched, before);
  EXPECT_EQ(after, before + seed);
}

TEST_P(ReorderedTraffic, LatePacketsAreWaitedForAndNothingIsSentAgain) {
  // No time-out, however slow the lcores are.
  auto pair = MakeTolerantPair({.timeout = 19});
  Impair({.reorder = 20, .reorder_ns = 200'000, .seed = 3});
  for (uint32_t i = 1; i <= 30; ++i) ExchangeAll(*pair, i);
  EXPECT_GT(Count(b_, roce::QpCounter::kKeptRequests), 0u);
  EXPECT_GT(Count(a_, roce::QpCounter::kKeptResponses), 0u);
  for (const roce::QpCounter counter :
       {roce::QpCounter::kSequenceNaksSent, roce::QpCounter::kImpliedNaks,
        roce::QpCounter::kAckTimeouts, roce::QpCounter::kRetransmittedPackets}) {
    EXPECT_EQ(Count(a_, counter) + Count(b_, counter), 0u) << roce::QpCounterName(counter);
  }
}

TEST_P(ReorderedTraffic, LossAndDuplicatesAreRepaired) {
  auto pair = MakeTolerantPair();
  Impair({.loss = 1, .duplicate = 3, .reorder = 5, .reorder_ns = 50'000, .seed = 4});
  for (uint32_t i = 1; i <= 20; ++i) ExchangeAll(*pair, i);
  EXPECT_GT(Count(a_, roce::QpCounter::kRetransmittedPackets), 0u);
}

// The frames of a queue pair that waits for a lost packet go with it.
TEST_P(ReorderedTraffic, EarlyFramesGoWithTheirQueuePair) {
  const uint32_t frames = TestDataplane().frames().in_use();
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    auto pair = MakeTolerantPair();
    const uint64_t before = Count(b_, roce::QpCounter::kKeptRequests);
    Impair({.loss = 20, .seed = static_cast<uint64_t>(i + 1)});
    for (int k = 0; k < 20; ++k) {
      pair->a.Post(ToB(Request(ROCI_ABI_WR_RDMA_WRITE, 1, {a_.Sge(0, 20000)}), 0));
    }
    pair->a.Ring();
    for (int tries = 0; tries < 5000 && Count(b_, roce::QpCounter::kKeptRequests) == before;
         ++tries) {
      usleep(1000);
    }
    EXPECT_GT(Count(b_, roce::QpCounter::kKeptRequests), before);
    if (i % 2 == 0) MoveTo(b_, pair->b, roce::QpState::kReset);
    a_.client().Do(dataplane::DestroyQueuePair{pair->a.qp()});
    b_.client().Do(dataplane::DestroyQueuePair{pair->b.qp()});
    a_.device().Do(dataplane::ClearImpairments{});
    b_.device().Do(dataplane::ClearImpairments{});
  }
  constexpr uint32_t kOfStashes = 600;  // free frames of lcores
  EXPECT_LT(TestDataplane().frames().in_use(), frames + kOfStashes);
  auto pair = MakeTolerantPair();
  roci_abi_cqe cqe;
  while (a_cq_.Poll(&cqe)) {
  }
  ExchangeAll(*pair, 7);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReorderedTraffic,
                         ::testing::Values(Layout{0, 0, false}, Layout{0, 1, false},
                                           Layout{0, 0, true}),
                         LayoutName);

}  // namespace
}  // namespace roci::testing
