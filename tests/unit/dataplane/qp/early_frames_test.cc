#include "dataplane/qp/early_frames.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

const OnShard& kShard = OnShardInTests::Token();

class EarlyFramesTest : public ::testing::Test {
 protected:
  EarlyFramesTest() {
    for (size_t i = 0; i < lists_.size(); ++i) lists_[i].of_user = &users_[i];
  }
  void TearDown() override {
    for (EarlyFrames::List& list : lists_) TakeAll(list);
  }
  // The frames are never dereferenced.
  rte_mbuf* Frame(uint32_t i) { return reinterpret_cast<rte_mbuf*>(&places_[i]); }
  void Keep(EarlyFrames::List& list, bool is_request, uint32_t turn) {
    kept_.Keep(kShard, list, is_request, roce::Psn(turn), Frame(turn & 0xFF));
  }
  std::vector<rte_mbuf*> Take(EarlyFrames::List& list, bool is_request) {
    std::vector<rte_mbuf*> taken;
    while (rte_mbuf* frame = kept_.TakeFirst(kShard, list, is_request)) taken.push_back(frame);
    return taken;
  }
  void TakeAll(EarlyFrames::List& list) {
    Take(list, true);
    Take(list, false);
  }

  // The frames that it could keep.
  uint32_t Fill(EarlyFrames::List& list) {
    uint32_t count = 0;
    for (; kept_.HasRoom(kShard, list); ++count) Keep(list, true, count);
    return count;
  }

  EarlyFrames kept_;
  std::array<std::atomic<uint32_t>, 3> users_{};
  std::array<EarlyFrames::List, 3> lists_;

 private:
  std::array<uint64_t, 256> places_{};
};

TEST_F(EarlyFramesTest, GivesThemInTheOrderOfTheirTurns) {
  EarlyFrames::List& list = lists_[0];
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

TEST_F(EarlyFramesTest, ALateOneOfTheSameTurnComesLast) {
  EarlyFrames::List& list = lists_[0];
  kept_.Keep(kShard, list, false, roce::Psn(1), Frame(1));
  kept_.Keep(kShard, list, false, roce::Psn(2), Frame(4));
  kept_.Keep(kShard, list, false, roce::Psn(1), Frame(2));
  const std::vector<rte_mbuf*> expected = {Frame(1), Frame(2), Frame(4)};
  EXPECT_EQ(Take(list, false), expected);
}

TEST_F(EarlyFramesTest, AUserLeavesRoomForOthers) {
  EXPECT_EQ(Fill(lists_[0]), EarlyFrames::kMost / 2);
  EXPECT_EQ(Fill(lists_[1]), EarlyFrames::kMost / 4);
  EXPECT_EQ(Fill(lists_[2]), EarlyFrames::kMost / 8);
}

TEST_F(EarlyFramesTest, QueuePairsOfAUserShareTheRoom) {
  lists_[1].of_user = lists_[0].of_user;
  EXPECT_EQ(Fill(lists_[0]), EarlyFrames::kMost / 2);
  EXPECT_EQ(Fill(lists_[1]), 0u);
  EXPECT_EQ(Fill(lists_[2]), EarlyFrames::kMost / 4);
  TakeAll(lists_[0]);
  EXPECT_EQ(users_[0], 0u);
  EXPECT_GT(Fill(lists_[1]), 0u);
}

}  // namespace
}  // namespace roci::dataplane
