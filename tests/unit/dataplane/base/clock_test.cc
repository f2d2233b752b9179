// The TSC clock follows CLOCK_MONOTONIC.
#include "dataplane/base/clock.h"

#include <gtest/gtest.h>
#include <rte_cycles.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace roci::dataplane {
namespace {

TEST(Clock, FollowsTheSystemsMonotonicClock) {
  Clock clock(rte_get_tsc_hz());
  uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    // However long the thread loses the processor in between, the time lies between both.
    const uint64_t before = Clock::Monotonic();
    const uint64_t now = clock.At(Clock::Tsc());
    const uint64_t after = Clock::Monotonic();
    EXPECT_GE(now, last);
    last = now;
    constexpr uint64_t kErrorNs = 5'000'000;  // of the TSC's frequency, until the clock is anchored
    EXPECT_GE(now + kErrorNs, before);
    EXPECT_LE(now, after + kErrorNs);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

TEST(Clock, VirtualTimeMovesByJumpsOnly) {
  Clock clock = Clock::Virtual(1'000);
  EXPECT_EQ(clock.At(Clock::Tsc()), 1'000U);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // longer than between two anchors
  EXPECT_EQ(clock.At(Clock::Tsc()), 1'000U);
  clock.JumpTo(70'000'000'000);
  EXPECT_EQ(clock.At(Clock::Tsc()), 70'000'000'000U);
}

}  // namespace
}  // namespace roci::dataplane
