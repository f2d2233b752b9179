// Decides whether a thread that waits for the other side of a ring or socket yields or sleeps.
// Time is an argument.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roci::abi {

// A yield is the cheapest wait if the scheduler runs the other side next. If unrelated threads also
// wait for the processor, the scheduler (Linux since 6.6) may run one of them for a time slice of
// milliseconds before the yielding thread runs again; a sleeping thread runs soon after its
// wake-up. The duration of past yields tells the two cases apart. Use one object per thread.
class YieldJudge {
 public:
  bool Allows(uint64_t now_ns) const { return now_ns >= backoff_until_ns_; }

  // Reports the duration of a yield. After a long yield, yields are not allowed for a backoff time,
  // which doubles with each further long yield up to a bound. A short yield resets it.
  void Took(uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns - begin_ns < kLongNs) {
      backoff_ns_ = kShortestBackoffNs;
      return;
    }
    backoff_until_ns_ = end_ns + backoff_ns_;
    backoff_ns_ = std::min(backoff_ns_ * 2, kLongestBackoffNs);
  }

 private:
  static constexpr uint64_t kLongNs = 250'000;
  static constexpr uint64_t kShortestBackoffNs = 10'000'000;
  static constexpr uint64_t kLongestBackoffNs = 320'000'000;

  uint64_t backoff_until_ns_ = 0;
  uint64_t backoff_ns_ = kShortestBackoffNs;
};

}  // namespace roci::abi
