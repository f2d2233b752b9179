// Which users are said to have blocked an lcore.
#include "dataplane/shard/memory_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace roci::testing {
namespace {

using dataplane::CopyUse;
using dataplane::MemoryWatch;

constexpr uint64_t kPeriodNs = uint64_t{MemoryWatch::kPeriodMs} * 1'000'000;

class MemoryWatchTest : public ::testing::Test {
 protected:
  MemoryWatchTest() {
    alice_->account = 1000;
    bob_->account = 1001;
    root_->is_trusted = true;
    watch_.Add(&alice_, alice_);
    watch_.Add(&bob_, bob_);
    watch_.Add(&root_, root_);
  }
  // A period after the last look.
  void Look(const CopyUse* in_use, uint64_t round, bool sleeps = true) {
    watch_.Look(now_ns_ += kPeriodNs, in_use, round, [sleeps] { return sleeps; });
  }

  MemoryWatch watch_;
  std::shared_ptr<CopyUse> alice_ = std::make_shared<CopyUse>();
  std::shared_ptr<CopyUse> bob_ = std::make_shared<CopyUse>();
  std::shared_ptr<CopyUse> root_ = std::make_shared<CopyUse>();
  uint64_t now_ns_ = 0;
};

TEST_F(MemoryWatchTest, AnAccessThatSleepsInTwoLooksBlocks) {
  Look(alice_.get(), 7);
  EXPECT_FALSE(alice_->has_blocked());
  const uint32_t changes = CopyUse::changes();
  Look(alice_.get(), 7);
  EXPECT_TRUE(alice_->has_blocked());
  EXPECT_FALSE(bob_->has_blocked());
  EXPECT_EQ(CopyUse::changes(), changes + 1);
  EXPECT_EQ(watch_.blocked(), 1u);
  EXPECT_EQ(watch_.TakeBlocker(), 1000u);
}

TEST_F(MemoryWatchTest, EachUserCountsOnce) {
  for (int i = 0; i < 5; ++i) Look(alice_.get(), 7);
  for (int i = 0; i < 5; ++i) Look(bob_.get(), 8);
  EXPECT_EQ(watch_.blocked(), 2u);
  EXPECT_EQ(watch_.TakeBlocker(), 1001u);
  EXPECT_EQ(watch_.TakeBlocker(), 1000u);
  EXPECT_EQ(watch_.TakeBlocker(), std::nullopt);
}

TEST_F(MemoryWatchTest, AnLcoreThatGoesOnIsNotBlocked) {
  for (uint64_t round = 0; round < 5; ++round) Look(alice_.get(), round);
  Look(bob_.get(), 9);
  Look(alice_.get(), 9);
  Look(nullptr, 9);
  Look(alice_.get(), 9);
  EXPECT_EQ(watch_.blocked(), 0u);
}

TEST_F(MemoryWatchTest, AnLcoreThatIsPreemptedIsNotBlocked) {
  for (int i = 0; i < 5; ++i) Look(alice_.get(), 7, /*sleeps=*/false);
  EXPECT_EQ(watch_.blocked(), 0u);
}

TEST_F(MemoryWatchTest, LooksInQuickSuccessionAreOne) {
  Look(alice_.get(), 7);
  watch_.Look(now_ns_ + kPeriodNs - 1, alice_.get(), 7, [] { return true; });
  EXPECT_EQ(watch_.blocked(), 0u);
}

TEST_F(MemoryWatchTest, TrustedUsersAndThoseWhoHaveLeftAreLeftAlone) {
  watch_.Remove(&bob_);
  for (int i = 0; i < 5; ++i) Look(root_.get(), 7);
  for (int i = 0; i < 5; ++i) Look(bob_.get(), 8);
  EXPECT_EQ(watch_.blocked(), 0u);
  EXPECT_TRUE(watch_.has_users());
  watch_.Remove(&alice_);
  EXPECT_FALSE(watch_.has_users());
}

}  // namespace
}  // namespace roci::testing
