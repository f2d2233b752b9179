#include "dataplane/qp/kept_frames.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

const OnShard& kShard = OnShardInTests::Token();

class KeptFramesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (KeptFrames::List& list : lists_) TakeAll(list);
  }
  // The frames are never dereferenced.
  rte_mbuf* Frame(uint32_t i) { return reinterpret_cast<rte_mbuf*>(&places_[i]); }
  void Keep(KeptFrames::List& list, bool is_request, uint32_t turn) {
    kept_.Keep(kShard, list, is_request, roce::Psn(turn), Frame(turn & 0xFF));
  }
  std::vector<rte_mbuf*> Take(KeptFrames::List& list, bool is_request) {
    std::vector<rte_mbuf*> taken;
    while (rte_mbuf* frame = kept_.TakeFirst(kShard, list, is_request)) taken.push_back(frame);
    return taken;
  }
  void TakeAll(KeptFrames::List& list) {
    Take(list, true);
    Take(list, false);
  }

  KeptFrames kept_;
  std::array<KeptFrames::List, 3> lists_;

 private:
  std::array<uint64_t, 256> places_{};
};

TEST_F(KeptFramesTest, GivesThemInTheOrderOfTheirTurns) {
  KeptFrames::List& list = lists_[0];
  EXPECT_FALSE(kept_.FirstDue(kShard, list, true).has_value());
  for (const uint32_t turn : {0xFFFFFEu, 0x000003u, 0x000001u, 0xFFFFFCu, 0x000005u}) {
    Keep(list, true, turn);
  }
  Keep(list, false, 7);
  Keep(lists_[1], true, 4);
  EXPECT_EQ(kept_.FirstDue(kShard, list, true), roce::Psn(0xFFFFFC));
  const std::vector<rte_mbuf*> expected = {Frame(0xFC), Frame(0xFE), Frame(1), Frame(3), Frame(5)};
  EXPECT_EQ(Take(list, true), expected);
  EXPECT_EQ(Take(list, false), std::vector<rte_mbuf*>{Frame(7)});
  EXPECT_EQ(Take(lists_[1], true), std::vector<rte_mbuf*>{Frame(4)});
  Keep(list, true, 9);
  EXPECT_EQ(Take(list, true), std::vector<rte_mbuf*>{Frame(9)}) << "an emptied list works again";
}

TEST_F(KeptFramesTest, ALateOneOfTheSameTurnComesLast) {
  KeptFrames::List& list = lists_[0];
  kept_.Keep(kShard, list, false, roce::Psn(1), Frame(1));
  kept_.Keep(kShard, list, false, roce::Psn(2), Frame(4));
  kept_.Keep(kShard, list, false, roce::Psn(1), Frame(2));
  const std::vector<rte_mbuf*> expected = {Frame(1), Frame(2), Frame(4)};
  EXPECT_EQ(Take(list, false), expected);
}

TEST_F(KeptFramesTest, AQueuePairLeavesRoomForOthers) {
  const auto fill = [&](KeptFrames::List& list) {
    uint32_t count = 0;
    for (; kept_.HasRoom(kShard, list); ++count) Keep(list, true, count);
    return count;
  };
  EXPECT_EQ(fill(lists_[0]), KeptFrames::kMost / 2);
  EXPECT_EQ(fill(lists_[1]), KeptFrames::kMost / 4);
  EXPECT_EQ(fill(lists_[2]), KeptFrames::kMost / 8);
}

}  // namespace
}  // namespace roci::dataplane
