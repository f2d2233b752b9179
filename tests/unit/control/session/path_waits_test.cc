// The waits of one session for paths, by number.
#include "control/session/path_waits.h"

#include <gtest/gtest.h>

namespace roci::control {
namespace {

const absl::Status kLate = absl::DeadlineExceededError("late");

uint32_t Begin(PathWaits& waits, uint64_t path, roce::TimeNs called = 0) {
  uint64_t* at = nullptr;
  const uint32_t number = waits.Begin(called, &at);
  *at = path;
  return number;
}

TEST(PathWaitsTest, EachAskerHasItsOwnResult) {
  PathWaits waits;
  const uint32_t first = Begin(waits, 1, 10);
  const uint32_t second = Begin(waits, 2, 20);
  EXPECT_NE(first, second);
  EXPECT_NE(first, 0u);
  EXPECT_TRUE(waits.IsUnderWay(first));
  EXPECT_FALSE(waits.Take(first).has_value()) << "not over";
  waits.End(first, kLate);
  waits.End(second, absl::OkStatus());
  EXPECT_FALSE(waits.IsUnderWay(first));
  const auto of_second = waits.Take(second);
  ASSERT_TRUE(of_second.has_value());
  EXPECT_EQ(of_second->status, absl::OkStatus());
  EXPECT_EQ(of_second->called, 20u);
  const auto of_first = waits.Take(first);
  ASSERT_TRUE(of_first.has_value());
  EXPECT_EQ(of_first->status, kLate);
  EXPECT_EQ(of_first->called, 10u);
  EXPECT_FALSE(waits.Take(first).has_value()) << "reported once";
}

TEST(PathWaitsTest, AWaitThatHasNotBegunHasNoResult) {
  PathWaits waits;
  const uint32_t number = Begin(waits, 0);
  waits.Drop(number);
  EXPECT_FALSE(waits.IsUnderWay(number));
  waits.End(number, kLate);
  EXPECT_FALSE(waits.Take(number).has_value());
}

TEST(PathWaitsTest, NumbersNeverGivenAreUnknown) {
  PathWaits waits;
  Begin(waits, 1);
  for (const uint32_t number : {0u, 2u, ~0u}) {
    EXPECT_FALSE(waits.IsUnderWay(number)) << number;
    EXPECT_FALSE(waits.Take(number).has_value()) << number;
  }
}

TEST(PathWaitsTest, ResultsThatNobodyAsksForAreForgotten) {
  PathWaits waits;
  const uint32_t first = Begin(waits, 1);
  waits.End(first, kLate);
  for (size_t i = 0; i < PathWaits::kMostResults; ++i) waits.End(Begin(waits, 2), kLate);
  EXPECT_EQ(waits.results(), PathWaits::kMostResults);
  EXPECT_FALSE(waits.Take(first).has_value());
}

TEST(PathWaitsTest, TheEndOfASessionCancelsEachPathOnce) {
  PathWaits waits;
  Begin(waits, 7);
  Begin(waits, 8);
  waits.End(Begin(waits, 9), kLate);
  EXPECT_EQ(waits.TakeAny() + waits.TakeAny(), 7u + 8u);
  EXPECT_EQ(waits.TakeAny(), 0u);
}

}  // namespace
}  // namespace roci::control
