#include "control/loop/log_limiter.h"

#include <gtest/gtest.h>

namespace roci::control {
namespace {

constexpr LogLimiter::Kind kRefused{"connection refused: %s", 1, 2};
constexpr LogLimiter::Kind kOther{"other", 1, 2};

TEST(LogLimiterTest, SuppressesLinesBeyondTheBurst) {
  LogLimiter limiter;
  for (uint32_t i = 0; i < LogLimiter::kBurst; ++i) EXPECT_TRUE(limiter.Admit(kRefused, 1000 + i));
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(limiter.Admit(kRefused, 2000));
  EXPECT_TRUE(limiter.Admit(kOther, 2000)) << "other lines are none the worse";
  EXPECT_EQ(limiter.Next(), 1000 + LogLimiter::kPeriod);
  EXPECT_FALSE(limiter.TakeSuppressed(limiter.Next() - 1).has_value());
  const auto suppressed = limiter.TakeSuppressed(limiter.Next());
  ASSERT_TRUE(suppressed.has_value());
  EXPECT_EQ(suppressed->count, 7u);
  EXPECT_STREQ(suppressed->kind.format, kRefused.format);
  EXPECT_EQ(limiter.Next(), roce::kNever);
  EXPECT_FALSE(limiter.TakeSuppressed(~roce::TimeNs{0}).has_value()) << "told once";
  EXPECT_TRUE(limiter.Admit(kRefused, 1000 + LogLimiter::kPeriod));
}

TEST(LogLimiterTest, RareLinesAreAllSaid) {
  LogLimiter limiter;
  for (roce::TimeNs now = 0; now < 100 * LogLimiter::kPeriod; now += LogLimiter::kPeriod / 5) {
    EXPECT_TRUE(limiter.Admit(kRefused, now));
  }
  EXPECT_EQ(limiter.Next(), roce::kNever);
}

TEST(LogLimiterTest, MoreKindsThanItKnowsAreStillSaid) {
  LogLimiter limiter;
  static const char formats[1000] = {};
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(limiter.Admit({&formats[i], 0, 0}, 5 + i));
  }
}

}  // namespace
}  // namespace roci::control
