#include "verbs_provider/abi/yield_judge.h"

#include <gtest/gtest.h>

namespace roci::abi {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

TEST(YieldJudge, AllowsYieldsThatAreShort) {
  YieldJudge judge;
  for (uint64_t now = 0; now < 100 * kMs; now += kMs) {
    ASSERT_TRUE(judge.Allows(now));
    judge.Took(now, now + 200 * kUs);
  }
}

TEST(YieldJudge, BacksOffAfterALongYield) {
  YieldJudge judge;
  judge.Took(0, 3 * kMs);
  EXPECT_FALSE(judge.Allows(3 * kMs));
  EXPECT_FALSE(judge.Allows(12 * kMs));
  EXPECT_TRUE(judge.Allows(13 * kMs));
}

TEST(YieldJudge, DoublesTheBackoffUpToABound) {
  YieldJudge judge;
  uint64_t now = 0, backoff = 0;
  for (int i = 0; i < 12; ++i) {
    const uint64_t end = now + 3 * kMs;
    judge.Took(now, end);
    for (now = end; !judge.Allows(now);) now += kMs;
    EXPECT_GE(now - end, backoff);
    backoff = now - end;
  }
  EXPECT_EQ(backoff, 320 * kMs);
  judge.Took(now, now + kUs);
  judge.Took(now, now + 3 * kMs);
  EXPECT_TRUE(judge.Allows(now + 13 * kMs)) << "a short yield resets the backoff";
}

}  // namespace
}  // namespace roci::abi
