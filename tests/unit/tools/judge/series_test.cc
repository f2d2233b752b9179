#include "tools/judge/series.h"

#include <gtest/gtest.h>

namespace roci::tools::judge {
namespace {

TEST(TimeHistogram, QuantilesAreWithinAQuarter) {
  TimeHistogram times;
  for (int64_t ns = 1; ns <= 10'000; ++ns) times.Add(ns);
  EXPECT_EQ(times.count(), 10'000u);
  EXPECT_EQ(times.least_ns(), 1u);
  EXPECT_EQ(times.most_ns(), 10'000u);
  EXPECT_EQ(times.mean_ns(), 5'000u);
  EXPECT_NEAR(static_cast<double>(times.QuantileNs(0.5)), 5'000, 1'250);
  EXPECT_NEAR(static_cast<double>(times.QuantileNs(0.99)), 9'900, 2'500);
  EXPECT_LE(times.QuantileNs(1), 10'000u);
}

TEST(TimeHistogram, TakesEveryTime) {
  TimeHistogram times;
  times.Add(-5);
  times.Add(0);
  times.Add(3);
  times.Add(INT64_MAX);
  EXPECT_EQ(times.least_ns(), 0u);
  EXPECT_EQ(times.QuantileNs(0), 0u);
  EXPECT_EQ(times.most_ns(), static_cast<uint64_t>(INT64_MAX));
}

TEST(ByteSeries, DoublesItsIntervalAndKeepsTheSum) {
  ByteSeries series;
  series.Add(1'000'000, 7);
  EXPECT_EQ(series.bins().size(), 1u);
  const uint64_t interval = series.interval_ns();
  for (int64_t i = 0; i < 100; ++i) {
    series.Add(1'000'000 + i * static_cast<int64_t>(interval), 10);
  }
  EXPECT_EQ(series.interval_ns(), 2 * interval);
  EXPECT_EQ(series.bins().size(), 50u);
  EXPECT_EQ(series.bins()[0], 27u);
  EXPECT_EQ(series.total(), 1'007u);
  EXPECT_EQ(series.most(), 27u);
}

TEST(ByteSeries, TakesTimesThatGoBackwardsAndFarAway) {
  ByteSeries series;
  series.Add(1'000, 1);
  series.Add(0, 2);
  EXPECT_EQ(series.bins()[0], 3u);
  series.Add(INT64_MAX, 4);
  EXPECT_EQ(series.bins()[0], 3u);
  EXPECT_LE(series.bins().size(), ByteSeries::kBins);
}

}  // namespace
}  // namespace roci::tools::judge
