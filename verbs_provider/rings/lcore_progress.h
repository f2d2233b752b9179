// Whether the daemon's thread runs while a thread of the program waits for it. Time is an argument.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roci::provider {

/// One thread's view of the counter in a doorbell page (abi/rings.h). Where the counter stands
/// still, other threads, this one among them, keep the daemon's thread from the processor: a yield
/// would not help it (since Linux 6.6 a scheduler need not choose it then), a sleep does.
class LcoreProgress {
 public:
  static constexpr uint64_t kPatienceNs = 300'000;
  static constexpr uint64_t kShortestSleepNs = 50'000;
  static constexpr uint64_t kLongestSleepNs = 1'000'000;

  /// The thread begins to wait.
  void Begin(uint64_t now_ns) {
    since_ns_ = now_ns;
    sleep_ns_ = kShortestSleepNs;
  }

  /// `rounds`: the counter, 0 where the daemon does not tell. How long to sleep before the next
  /// look, ns; 0: the daemon's thread runs. Sleeps grow while it does not.
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
