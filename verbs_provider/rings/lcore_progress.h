// Decides whether a program's thread that waits for the daemon's lcore sleeps. Time is an argument.
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbs_provider/base/clock.h"

namespace roci::provider {

/// Tracks the loop counter of a doorbell page (`rounds`, abi/rings.h) for one waiting thread. If
/// the counter does not change, other threads, possibly this one, keep the lcore off the processor.
/// A yield does not help (since Linux 6.6 the scheduler need not choose the lcore then); a sleep
/// does.
class LcoreProgress {
 public:
  static constexpr uint64_t kPatienceNs = 300'000;
  static constexpr uint64_t kShortestSleepNs = 50'000;
  static constexpr uint64_t kLongestSleepNs = kNsPerMs;

  /// The thread begins to wait.
  void Begin(uint64_t now_ns) {
    since_ns_ = now_ns;
    sleep_ns_ = kShortestSleepNs;
  }

  /// Takes the value of the counter; 0 if the daemon does not maintain it. Returns how long to
  /// sleep before the next call, ns. 0: do not sleep. Sleeps double while the counter does not
  /// change.
  uint64_t Look(uint32_t rounds, uint64_t now_ns) {
    if (rounds == 0 || rounds != rounds_) {
      rounds_ = rounds;
      Begin(now_ns);
      return 0;
    }
    if (now_ns - since_ns_ < kPatienceNs) return 0;
    const uint64_t sleep_ns = sleep_ns_;
    sleep_ns_ = std::min(2 * sleep_ns_, kLongestSleepNs);
    return sleep_ns;
  }

 private:
  uint32_t rounds_ = 0;
  uint64_t since_ns_ = 0;
  uint64_t sleep_ns_ = kShortestSleepNs;
};

}  // namespace roci::provider
