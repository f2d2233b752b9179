// Adaptive spinning: whether a thread that waits for the other side of a ring or socket should spin
// for a short time before it sleeps. Reads no clock: the caller chooses how long it spins.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roci::abi {

// Spinning pays if the other side runs on another processor. If both share a processor, or if other
// threads occupy the other side's, spinning only costs time. The results of recent spins decide.
// Not thread-safe.
class SpinJudge {
 public:
  // Called once for each wait. If it returns true, the caller spins and calls Note().
  bool Allows() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }

  // `answered`: whether the awaited answer came while the caller spun. If not, Allows() is false
  // for the next waits: four times as many after each failure, half as many after each success. So
  // spinning stops where only half of the spins succeed.
  void Note(bool answered) {
    if (answered) {
      next_skip_ = std::max(next_skip_ / 2, kFewest);
      return;
    }
    skip_ = next_skip_;
    next_skip_ = std::min(next_skip_ * 4, kMost);
  }

 private:
  static constexpr uint32_t kFewest = 1;
  static constexpr uint32_t kMost = 64;

  uint32_t skip_ = 0;
  uint32_t next_skip_ = kFewest;
};

}  // namespace roci::abi
