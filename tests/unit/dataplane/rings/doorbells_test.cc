#include "dataplane/rings/doorbells.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace roci::dataplane {
namespace {

void Ring(roci_abi_doorbells& page, uint32_t handle) {
  std::atomic_ref(page.level0[handle >> 6]).fetch_or(uint64_t{1} << (handle & 63));
  std::atomic_ref(page.level1[handle >> 12]).fetch_or(uint64_t{1} << ((handle >> 6) & 63));
  std::atomic_ref(page.level2).fetch_or(uint64_t{1} << (handle >> 12));
}

class DoorbellsTest : public ::testing::Test {
 protected:
  std::multiset<uint32_t> Collect(uint32_t budget = 1u << 20) {
    std::multiset<uint32_t> seen;
    bells_.Collect(budget, [&](uint32_t handle) { seen.insert(handle); });
    return seen;
  }
  std::unique_ptr<roci_abi_doorbells> page_ = std::make_unique<roci_abi_doorbells>();
  Doorbells bells_{page_.get()};
};

TEST_F(DoorbellsTest, PublishesTheLoopCounter) {
  EXPECT_EQ(page_->rounds, 0u);
  bells_.SetRounds(7);
  EXPECT_EQ(page_->rounds, 7u);
}

TEST_F(DoorbellsTest, FindsEveryHandleOnce) {
  EXPECT_FALSE(bells_.Pending());
  EXPECT_TRUE(Collect().empty());
  for (const uint32_t handle : {0u, 1u, 63u, 64u, 4095u, 4096u, 65535u}) Ring(*page_, handle);
  Ring(*page_, 64);
  EXPECT_TRUE(bells_.Pending());
  EXPECT_EQ(Collect(), (std::multiset<uint32_t>{0, 1, 63, 64, 4095, 4096, 65535}));
  EXPECT_FALSE(bells_.Pending());
  EXPECT_TRUE(Collect().empty());
}

TEST_F(DoorbellsTest, HandlesBeyondTheBudgetAreCollectedLater) {
  for (uint32_t handle = 0; handle < 65536; handle += 7) Ring(*page_, handle);
  std::multiset<uint32_t> all;
  int calls = 0;
  while (bells_.Pending()) {
    const auto some = Collect(100);
    EXPECT_LT(some.size(), 100u + 64);
    all.insert(some.begin(), some.end());
    ASSERT_LT(++calls, 200);
  }
  EXPECT_EQ(all.size(), (65536u + 6) / 7);
  EXPECT_EQ(std::set<uint32_t>(all.begin(), all.end()).size(), all.size());
}

TEST_F(DoorbellsTest, AppsSeeWhetherTheDaemonSleeps) {
  bells_.SetSleeping(true);
  EXPECT_EQ(page_->sleeping, 1u);
  bells_.SetSleeping(false);
  EXPECT_EQ(page_->sleeping, 0u);
}

TEST_F(DoorbellsTest, ArbitraryBitsAreBounded) {
  std::memset(static_cast<void*>(page_.get()), 0xFF, sizeof(*page_));
  EXPECT_EQ(Collect().size(), 65536u);
  EXPECT_FALSE(bells_.Pending());
  // Bits in upper levels without bits below them.
  page_->level2 = ~uint64_t{0};
  EXPECT_TRUE(Collect().empty());
  EXPECT_FALSE(bells_.Pending());
}

// Two threads ring while the daemon collects: no doorbell after the last visit is lost.
TEST_F(DoorbellsTest, NoDoorbellIsLostBetweenThreads) {
  constexpr uint32_t kHandles = 300;
  constexpr uint64_t kPosts = 20000;
  std::vector<std::atomic<uint64_t>> posted(kHandles);
  std::vector<uint64_t> seen(kHandles);
  const auto ringer = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (uint64_t i = 0; i < kPosts; ++i) {
      const auto handle = static_cast<uint32_t>(random() % kHandles);
      posted[handle].fetch_add(1);
      Ring(*page_, handle);
    }
  };
  std::thread one(ringer, 1);
  std::thread two(ringer, 2);
  uint64_t total = 0;
  const auto take = [&](uint32_t handle) {
    const uint64_t now = posted[handle].load();
    total += now - seen[handle];
    seen[handle] = now;
  };
  std::thread watchdog;
  for (uint64_t spins = 0; total < 2 * kPosts; ++spins) {
    bells_.Collect(64, take);
    if (spins % 64 == 0) std::this_thread::yield();
    ASSERT_LT(spins, uint64_t{500'000'000});
  }
  one.join();
  two.join();
  EXPECT_EQ(total, 2 * kPosts);
}

}  // namespace
}  // namespace roci::dataplane
