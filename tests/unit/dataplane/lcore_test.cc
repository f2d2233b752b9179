// Functions run on an lcore, or in its place while it has nothing to do: one at a time, whoever
// runs them, and seen by those that follow.
#include "dataplane/lcore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "dataplane/worker.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

constexpr uint32_t kCalls = 20'000;

TEST(LcoreTest, RunsFunctionsOneAtATimeAndLosesNone) {
  dataplane::Lcore& lcore = TestDataplane().lcore(0);
  uint32_t count = 0;  // plain: two at a time would lose some
  bool inside = false;
  auto add = [&] {
    ASSERT_FALSE(inside);
    inside = true;
    ++count;
    inside = false;
  };
  const auto before = lcore.Snapshot().calls;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (uint32_t n = 0; n < kCalls; ++n) lcore.Call(add);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lcore.Call([&] { return count; }), 3 * kCalls);
  EXPECT_GE(lcore.Snapshot().calls - before, 3 * kCalls);
}

// A sleeping lcore lends itself as well, and looks for what the function left to be done.
TEST(LcoreTest, RunsFunctionsWhileItSleepsAndWakes) {
  dataplane::Lcore& lcore = TestDataplane().lcore(0);
  for (int i = 0; i < 20; ++i) {
    const auto sleeps = lcore.Snapshot().sleeps;
    for (int tries = 0; tries < 2000 && lcore.Snapshot().sleeps == sleeps; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lcore.FinishRound();  // and it falls asleep again
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(lcore.Snapshot().sleeps, sleeps);
    const auto loops = lcore.Snapshot().loops;
    EXPECT_EQ(lcore.Call([] { return 7; }), 7);
    lcore.FinishRound();
    EXPECT_GT(lcore.Snapshot().loops, loops);
  }
}

// What an lcore looks at once more before it sleeps, and what wakes it when a function has left it.
TEST(LcoreTest, ADoorbellIsWork) {
  dataplane::Wire wire(TestDataplane());
  Node node(TestDataplane(), &wire, {});
  dataplane::Lcore& lcore = node.session().lcore();
  const uint64_t before = lcore.Snapshot().bad_doorbells;
  lcore.Call([&] {
    node.session().doorbells().Ring(5);
    EXPECT_TRUE(lcore.worker().HasWork());
  });
  lcore.FinishRound();
  lcore.FinishRound();
  EXPECT_EQ(lcore.Snapshot().bad_doorbells, before + 1);
}

// A function that leaves nothing to do costs a sleeping lcore nothing.
TEST(LcoreTest, SleepsOnWhenNothingIsLeftToDo) {
  dataplane::Lcore& lcore = TestDataplane().lcore(0);
  uint64_t least = UINT64_MAX;
  // It wakes once a second by itself, and whatever earlier tests left may wake it.
  for (int attempt = 0; attempt < 10 && least != 0; ++attempt) {
    lcore.FinishRound();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto loops = lcore.Snapshot().loops;
    for (int i = 0; i < 100; ++i) lcore.Call([] {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    least = std::min<uint64_t>(least, lcore.Snapshot().loops - loops);
  }
  EXPECT_EQ(least, 0U);
}

}  // namespace
}  // namespace roci::testing
