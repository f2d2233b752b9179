// Whether a thread that waits for the other side of a ring or socket had better yield or sleep.
// Time is an argument.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roci::abi {

// To yield is cheapest where the other side runs next. Where somebody else's work waits for the
// processor as well, a scheduler may give that a whole slice, milliseconds, before the thread that
// yielded runs again (Linux since 6.6 does), while one that sleeps runs soon after it is woken.
// What yields have taken tells which it is. For one thread.
class YieldJudge {
 public:
  bool Allows(uint64_t now_ns) const { return now_ns >= shunned_until_ns_; }

  // What a yield that was allowed took: a long one is not repeated for a while, which doubles each
  // time.
  void Took(uint64_t begin_ns, uint64_t end_ns) {
    if (end_ns - begin_ns < kLongNs) {
      shun_ns_ = kShortestShunNs;
      return;
    }
    shunned_until_ns_ = end_ns + shun_ns_;
    shun_ns_ = std::min(shun_ns_ * 2, kLongestShunNs);
  }

 private:
  static constexpr uint64_t kLongNs = 250'000;
  static constexpr uint64_t kShortestShunNs = 10'000'000;
  static constexpr uint64_t kLongestShunNs = 320'000'000;

  uint64_t shunned_until_ns_ = 0;
  uint64_t shun_ns_ = kShortestShunNs;
};

}  // namespace roci::abi
