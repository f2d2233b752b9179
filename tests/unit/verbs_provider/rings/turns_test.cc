#include "verbs_provider/rings/turns.h"

#include <gtest/gtest.h>

namespace roci::provider {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;
constexpr uint32_t kProcessors = 2;
constexpr uint32_t kMany = 63;

// Sleeps `count` times beside `waiting` threads, each time `late_ns` longer than asked for. The
// last sleep, ns.
uint64_t SleepOften(Turns& turns, int count, uint32_t waiting, uint64_t late_ns, uint64_t& now) {
  uint64_t asked = 0;
  for (int i = 0; i < count; ++i) {
    now += Turns::kTurnNs;
    asked = turns.SleepNs(waiting, kProcessors, now);
    turns.Slept(now, now + asked + late_ns, asked);
    now += asked + late_ns;
  }
  return asked;
}

TEST(Turns, AThreadYieldsOnceItHasSleptInTime) {
  Turns turns;
  uint64_t now = kMs;
  EXPECT_FALSE(turns.MayYield(0, kProcessors, now));
  SleepOften(turns, Turns::kSleepsBeforeYield, 0, 50 * kUs, now);
  for (int i = 0; i < 100; ++i, now += 10 * kUs) {
    ASSERT_TRUE(turns.MayYield(0, kProcessors, now));
    turns.Yielded(now, now + 2 * kUs);
  }
}

TEST(Turns, AThreadThatGetsAProcessorLateDoesNotYield) {
  Turns turns;
  uint64_t now = kMs;
  SleepOften(turns, Turns::kSleepsBeforeYield, 0, 50 * kUs, now);
  SleepOften(turns, 1, 0, Turns::kLateNs, now);
  EXPECT_FALSE(turns.MayYield(0, kProcessors, now));
  SleepOften(turns, Turns::kSleepsBeforeYield, 0, 50 * kUs, now);
  EXPECT_TRUE(turns.MayYield(0, kProcessors, now));
}

TEST(Turns, AThreadDoesNotYieldBesideManyOthers) {
  Turns turns;
  uint64_t now = kMs;
  SleepOften(turns, 10, 0, 0, now);
  const uint32_t few = Turns::kWaitingPerProcessor * kProcessors - 1;
  EXPECT_TRUE(turns.MayYield(few, kProcessors, now));
  EXPECT_FALSE(turns.MayYield(few + 1, kProcessors, now));
  EXPECT_TRUE(turns.MayYield(few + 1, kProcessors + 1, now));
}

TEST(Turns, AYieldThatTookLongIsNotRepeatedForAWhile) {
  Turns turns;
  uint64_t now = kMs;
  SleepOften(turns, 10, 0, 0, now);
  turns.Yielded(now, now + 3 * kMs);
  now += 3 * kMs;
  SleepOften(turns, 10, 0, 0, now);
  EXPECT_FALSE(turns.MayYield(0, kProcessors, now));
  EXPECT_TRUE(turns.MayYield(0, kProcessors, now + 10 * kMs));
}

TEST(Turns, AThreadPollsBetweenTwoSleeps) {
  Turns turns;
  uint64_t now = kMs;
  SleepOften(turns, 1, 0, 0, now);
  EXPECT_EQ(turns.SleepNs(kMany, kProcessors, now), 0u);
  EXPECT_EQ(turns.SleepNs(kMany, kProcessors, now + Turns::kTurnNs - 1), 0u);
  EXPECT_NE(turns.SleepNs(kMany, kProcessors, now + Turns::kTurnNs), 0u);
}

TEST(Turns, SleepsGrowToTheTurnsOfTheOthersWhileTheyEndLate) {
  Turns turns;
  uint64_t now = kMs, before = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t ns = SleepOften(turns, 1, kMany, kMs, now);
    EXPECT_GE(ns, before);
    before = ns;
  }
  EXPECT_EQ(before, kMany * Turns::kTurnNs / kProcessors);
  EXPECT_EQ(SleepOften(turns, 10, 1000, kMs, now), Turns::kLongestSleepNs);
  EXPECT_EQ(SleepOften(turns, 1, 7, kMs, now), 7 * Turns::kTurnNs / kProcessors);
  EXPECT_EQ(SleepOften(turns, 1, 0, kMs, now), 1u) << "a thread alone helps nobody by sleeping";
}

TEST(Turns, SleepsShrinkWhileTheyEndInTime) {
  Turns turns;
  uint64_t now = kMs;
  const uint64_t longest = SleepOften(turns, 10, kMany, kMs, now);
  uint64_t before = longest;
  for (int i = 0; i < 40; ++i) {
    const uint64_t ns = SleepOften(turns, 1, kMany, 50 * kUs, now);
    EXPECT_LE(ns, before);
    before = ns;
  }
  EXPECT_LT(before, longest / 10);
}

TEST(Turns, ASleepForAnotherReasonSaysNothingOfTheOtherThreads) {
  Turns turns;
  uint64_t now = kMs;
  turns.SleptOtherwise(now + kMs);
  now += kMs;
  EXPECT_EQ(turns.SleepNs(kMany, kProcessors, now), 0u) << "the thread polls first";
  now += Turns::kTurnNs;
  EXPECT_EQ(turns.SleepNs(kMany, kProcessors, now), 1u);
  EXPECT_FALSE(turns.MayYield(0, kProcessors, now));
}

}  // namespace
}  // namespace roci::provider
