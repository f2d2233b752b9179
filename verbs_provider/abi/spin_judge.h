// Whether a side of a ring or socket that waits for the other had better keep its processor for a
// short while (spin), or sleep at once. No clock: the caller knows how long it spins.
#pragma once

#include <algorithm>
#include <cstdint>

namespace roci::abi {

// To spin pays where the other side is awake on another processor. Where both share one, or others
// keep the other side from its own, it only costs. What spinning has led to lately tells which it
// is. For one thread.
class SpinJudge {
 public:
  // Asked once for each wait. If true, Note() follows.
  bool Allows() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }

  // Whether what was waited for came while the caller spun: if not, waits are skipped, more each
  // time. Half of the waits are not enough for spinning to pay.
  void Note(bool came) {
    if (came) {
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
