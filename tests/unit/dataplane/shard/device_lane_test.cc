// Sending the frames of a lane: frames that the link cannot carry are dropped, counted and freed.
// Also the stash of free frames.
#include "dataplane/shard/device_lane.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/base/frame_stash.h"
#include "dataplane/link/link_tap.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();

constexpr uint32_t kFrames = 1024;
constexpr roce::Mac kOwn{{0x02, 0, 0, 0, 0, 1}};
constexpr roce::Mac kPeer{{0x02, 0, 0, 0, 0, 2}};

std::unique_ptr<dataplane::FramePool> MakePool() {
  (void)TestDataplane();  // DPDK has begun
  auto pool = dataplane::FramePool::Create(kFrames);
  EXPECT_TRUE(pool.ok());
  return *std::move(pool);
}

// A lane of this thread's own, between two ends of a wire.
class DeviceLaneTest : public ::testing::Test {
 protected:
  DeviceLaneTest()
      : wire_(TestDataplane()),
        node_wire_(TestDataplane()),
        node_(TestDataplane(), &node_wire_, {}),
        lane_(dataplane::ShardAccess::DeviceOf(node_.device()),
              {.mac = kOwn,
               .congestion = {},
               .wire = &wire_,
               .endpoint = *wire_.AddEndpoint(kOwn),
               .now_ns = &now_}),
        peer_(*wire_.AddEndpoint(kPeer)) {}

  void Stage(uint32_t length, const roce::Mac& to = kPeer, bool tagged = false,
             uint32_t lcore = 0) {
    rte_mbuf* frame = rte_pktmbuf_alloc(pool_->mempool());
    ASSERT_NE(frame, nullptr) << "frames have leaked";
    char* data = rte_pktmbuf_append(frame, static_cast<uint16_t>(length));
    std::memset(data, 0, length);
    std::memcpy(data, to.bytes.data(), to.bytes.size());
    const uint16_t type = rte_cpu_to_be_16(tagged ? 0x8100 : 0x0800);
    std::memcpy(data + 12, &type, sizeof(type));
    lane_.Stage(kShard, frame, lcore);
  }
  // Lengths of the frames that arrived at one end of the wire.
  std::vector<uint32_t> Arrived(uint32_t endpoint, uint32_t lcore = 0) {
    std::vector<uint32_t> lengths;
    rte_mbuf* frame = nullptr;
    while (wire_.Receive(endpoint, lcore, &frame, 1) == 1) {
      lengths.push_back(frame->pkt_len);
      rte_pktmbuf_free(frame);
    }
    return lengths;
  }

  std::unique_ptr<dataplane::FramePool> pool_ = MakePool();
  uint64_t now_ = 1;
  dataplane::Wire wire_;
  dataplane::Wire node_wire_;
  Node node_;
  dataplane::DeviceLane lane_;
  const uint32_t peer_;
};

TEST_F(DeviceLaneTest, CountsWhatItSends) {
  for (const uint32_t length : {60u, 100u, 4000u}) Stage(length);
  EXPECT_TRUE(lane_.FlushStage(kShard));
  EXPECT_EQ(Arrived(peer_), (std::vector<uint32_t>{60, 100, 4000}));
  EXPECT_EQ(lane_.counters.tx_packets.value(), 3u);
  EXPECT_EQ(lane_.counters.tx_bytes.value(), 4160u);
  EXPECT_EQ(lane_.staged(kShard), 0u);
}

TEST_F(DeviceLaneTest, FramesGoToTheLcoreOfTheirQueuePair) {
  ASSERT_EQ(kTestLcores, 2u);
  Stage(61, kPeer, false, 0);
  Stage(62, kPeer, false, 1);
  Stage(63, kPeer, false, 1);
  Stage(64, kPeer, false, 0);
  Stage(65, kPeer, false, 7);  // no such lcore: any lcore may get it
  EXPECT_TRUE(lane_.FlushStage(kShard));
  EXPECT_EQ(Arrived(peer_, 1), (std::vector<uint32_t>{62, 63}));
  EXPECT_EQ(Arrived(peer_, 0), (std::vector<uint32_t>{61, 64, 65}));
}

TEST_F(DeviceLaneTest, DropsFramesThatTheLinkDoesNotCarry) {
  lane_.UseLink(kShard, 128, 0);
  Stage(128);
  Stage(129);
  Stage(132, kPeer, true);
  Stage(133, kPeer, true);
  Stage(500, kOwn);
  Stage(60);
  EXPECT_TRUE(lane_.FlushStage(kShard));
  EXPECT_EQ(Arrived(peer_), (std::vector<uint32_t>{128, 132, 60}));
  EXPECT_EQ(Arrived(lane_.endpoint), std::vector<uint32_t>{500}) << "needs no link";
  EXPECT_EQ(lane_.counters.tx_above_mtu.value(), 2u);
  EXPECT_EQ(lane_.counters.tx_packets.value(), 4u);
  lane_.UseLink(kShard, dataplane::DeviceLane::kNoFrame, 0);
  Stage(60);
  EXPECT_TRUE(lane_.FlushStage(kShard));
  EXPECT_TRUE(Arrived(peer_).empty());
  EXPECT_EQ(lane_.counters.tx_link_down.value(), 1u);
}

TEST_F(DeviceLaneTest, TakesNothingFromALinkThatIsDown) {
  dataplane::LinkTap tap(0, &now_, pool_->mempool(), {});
  lane_.SetDown(kShard, true, tap);
  Stage(500, kOwn);  // stays on the host
  EXPECT_TRUE(lane_.FlushStage(kShard));
  std::array<rte_mbuf*, dataplane::DeviceLane::kBurst> frames;
  EXPECT_EQ(lane_.Receive(kShard, frames.data()).count, 0u);
  EXPECT_EQ(lane_.counters.rx_link_down.value(), 1u);
  EXPECT_EQ(pool_->in_use(), 0u);
  // The tap has no work, and stays for as long as the link is down.
  lane_.ServeTap(kShard);
  EXPECT_EQ(lane_.tap(kShard), &tap);
  lane_.SetDown(kShard, false, tap);
  lane_.ServeTap(kShard);
  EXPECT_EQ(lane_.tap(kShard), nullptr);
}

TEST_F(DeviceLaneTest, DropsHeldFramesWhileTheLinkIsDown) {
  dataplane::ImpairmentSettings settings;
  settings.direction = dataplane::LinkDirection::kIn;
  settings.delay_ns = 100;
  dataplane::Impairment rule(settings, 0);
  dataplane::LinkTap tap(0, &now_, pool_->mempool(), {});
  tap.AddRule(kShard, settings.direction, rule);
  lane_.AttachTap(kShard, tap);
  Stage(500, kOwn);
  EXPECT_TRUE(lane_.FlushStage(kShard));
  std::array<rte_mbuf*, dataplane::DeviceLane::kBurst> frames;
  EXPECT_EQ(lane_.Receive(kShard, frames.data()).count, 0u);
  EXPECT_EQ(tap.next_due(), now_ + settings.delay_ns);
  lane_.SetDown(kShard, true, tap);
  now_ += settings.delay_ns;
  EXPECT_EQ(lane_.Receive(kShard, frames.data()).count, 0u);
  EXPECT_EQ(lane_.counters.rx_link_down.value(), 1u);
  EXPECT_EQ(tap.next_due(), dataplane::DelayQueue::kNever) << "the lcore can sleep";
  EXPECT_EQ(pool_->in_use(), 0u);
  tap.RemoveRule(kShard, rule);
}

TEST_F(DeviceLaneTest, FreesWhatItDrops) {
  lane_.UseLink(kShard, 128, 0);
  for (uint32_t i = 0; i < 2 * kFrames; ++i) {
    Stage(200);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_TRUE(lane_.FlushStage(kShard));
  }
  EXPECT_EQ(lane_.counters.tx_above_mtu.value(), 2 * kFrames);
  EXPECT_EQ(pool_->in_use(), 0u);
}

TEST(FrameStashTest, GivesEveryBufferBackOnce) {
  const std::unique_ptr<dataplane::FramePool> pool = MakePool();
  std::vector<rte_mbuf*> frames(640);
  ASSERT_EQ(rte_mempool_get_bulk(pool->mempool(), reinterpret_cast<void**>(frames.data()),
                                 static_cast<unsigned>(frames.size())),
            0);
  {
    dataplane::FrameStash stash(pool->mempool());
    for (size_t i = 0; i < frames.size(); i += 32) stash.Put(&frames[i], 32);
    for (int i = 0; i < 700; ++i) {
      ASSERT_TRUE(stash.Ensure());
      rte_mbuf* frame = stash.Top();
      stash.Pop();
      stash.Put(&frame, 1);
    }
  }
  EXPECT_EQ(pool->in_use(), 0u);
  std::vector<void*> all(pool->capacity());
  ASSERT_EQ(rte_mempool_get_bulk(pool->mempool(), all.data(), static_cast<unsigned>(all.size())),
            0);
  EXPECT_EQ(std::set<void*>(all.begin(), all.end()).size(), all.size());
  rte_mempool_put_bulk(pool->mempool(), all.data(), static_cast<unsigned>(all.size()));
}

}  // namespace
}  // namespace roci::testing
