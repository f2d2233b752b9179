#include "verbs_provider/rings/lcore_progress.h"

#include <gtest/gtest.h>

namespace roci::provider {
namespace {

constexpr uint64_t kUs = 1000;

TEST(LcoreProgress, DoesNotSleepWhileTheLcoreRuns) {
  LcoreProgress progress;
  uint32_t rounds = 1;
  for (uint64_t now = 0; now < 10'000 * kUs; now += 200 * kUs) {
    EXPECT_EQ(progress.Look(rounds++, now), 0u);
  }
}

TEST(LcoreProgress, SleepsGrowUntilTheCounterChanges) {
  LcoreProgress progress;
  EXPECT_EQ(progress.Look(7, 0), 0u);
  EXPECT_EQ(progress.Look(7, LcoreProgress::kPatienceNs - 1), 0u);
  uint64_t now = LcoreProgress::kPatienceNs;
  uint64_t expected = LcoreProgress::kShortestSleepNs;
  for (int i = 0; i < 10; ++i) {
    const uint64_t sleep = progress.Look(7, now);
    EXPECT_EQ(sleep, expected);
    expected = std::min(2 * expected, LcoreProgress::kLongestSleepNs);
    now += sleep;
  }
  EXPECT_EQ(expected, LcoreProgress::kLongestSleepNs);
  EXPECT_EQ(progress.Look(8, now), 0u);
  EXPECT_EQ(progress.Look(8, now + LcoreProgress::kPatienceNs), LcoreProgress::kShortestSleepNs);
}

// A counter that did not change before the wait began is no reason to sleep.
TEST(LcoreProgress, DoesNotSleepAtTheStartOfAWait) {
  LcoreProgress progress;
  EXPECT_EQ(progress.Look(7, 0), 0u);
  progress.Begin(5000 * kUs);
  EXPECT_EQ(progress.Look(7, 5000 * kUs + LcoreProgress::kPatienceNs - 1), 0u);
  EXPECT_NE(progress.Look(7, 5000 * kUs + LcoreProgress::kPatienceNs), 0u);
}

TEST(LcoreProgress, DoesNotSleepIfTheDaemonHasNoCounter) {
  LcoreProgress progress;
  for (uint64_t now = 0; now < 10'000 * kUs; now += 200 * kUs) EXPECT_EQ(progress.Look(0, now), 0u);
}

TEST(LcoreProgress, TheCounterMayWrap) {
  LcoreProgress progress;
  EXPECT_EQ(progress.Look(UINT32_MAX, 0), 0u);
  EXPECT_EQ(progress.Look(1, 10 * LcoreProgress::kPatienceNs), 0u);
}

}  // namespace
}  // namespace roci::provider
