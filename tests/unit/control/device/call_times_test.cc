#include "control/device/call_times.h"

#include <gtest/gtest.h>

namespace roci::control {
namespace {

TEST(CallTimesTest, CountsInTheBucketWhoseBoundIsNotBelow) {
  CallTimes times;
  const auto& histogram = times.histograms()[ROCI_ABI_REG_MR];
  times.Note(ROCI_ABI_REG_MR, 0, false);
  times.Note(ROCI_ABI_REG_MR, CallTimes::kBoundsNs[0], false);
  EXPECT_EQ(histogram.buckets[0], 2u);
  times.Note(ROCI_ABI_REG_MR, CallTimes::kBoundsNs[0] + 1, true);
  EXPECT_EQ(histogram.buckets[1], 1u);
  times.Note(ROCI_ABI_REG_MR, CallTimes::kBoundsNs.back() + 1, true);
  EXPECT_EQ(histogram.buckets.back(), 1u);
  EXPECT_EQ(histogram.refused, 2u);
  EXPECT_EQ(histogram.sum_ns, 2 * CallTimes::kBoundsNs[0] + 2 + CallTimes::kBoundsNs.back());
}

TEST(CallTimesTest, IgnoresCommandsThatDoNotExist) {
  CallTimes times;
  times.Note(ROCI_ABI_COMMAND_COUNT, 1, true);
  times.Note(UINT32_MAX, 1, true);
  for (const auto& histogram : times.histograms()) EXPECT_EQ(histogram.sum_ns, 0u);
}

}  // namespace
}  // namespace roci::control
