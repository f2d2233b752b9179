// The lcore's clock: the TSC (arm64: the generic timer's virtual count), scaled to the nanoseconds
// of CLOCK_MONOTONIC, without a system call. Or a virtual clock, which its owner moves.
#pragma once

#include <time.h>

#include <cstdint>

#include "roce/work.h"

namespace roci::dataplane {

using roce::kNsPerMs;
using roce::kNsPerSecond;
using roce::kNsPerUs;

// One per thread. Never goes back.
class Clock {
 public:
  // `tsc_hz` is the TSC's frequency.
  explicit Clock(uint64_t tsc_hz)
      : anchor_cycles_(tsc_hz / kAnchorsPerSecond),
        multiplier_(static_cast<uint64_t>(
            (static_cast<unsigned __int128>(kNsPerSecond) << kFractionBits) / tsc_hz)) {
    Anchor(Tsc());
  }

  // The time stands still at `begin_ns` until JumpTo.
  static Clock Virtual(uint64_t begin_ns) { return Clock(VirtualTag{}, begin_ns); }
  // Of a virtual clock. `now_ns` is not less than in the last call.
  void JumpTo(uint64_t now_ns) { anchor_ns_ = now_ns; }

  // CLOCK_MONOTONIC in ns, for code off the hot path.
  static uint64_t Monotonic() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  }

  // Counts at the frequency that rte_get_tsc_hz() returns.
  static uint64_t Tsc() {
#if defined(__aarch64__)
    uint64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return __builtin_ia32_rdtsc();
#endif
  }

  // The time in ns at `tsc`, which must not be older than in the last call.
  uint64_t At(uint64_t tsc) {
    if (tsc - anchor_tsc_ > anchor_cycles_) [[unlikely]]
      Anchor(tsc);
    const auto elapsed = static_cast<uint64_t>(
        (static_cast<unsigned __int128>(tsc - anchor_tsc_) * multiplier_) >> kFractionBits);
    const uint64_t now = anchor_ns_ + elapsed;
    // If anchoring set the clock back, the time stands still until it has caught up.
    last_ns_ = now > last_ns_ ? now : last_ns_;
    return last_ns_;
  }

 private:
  static constexpr uint64_t kAnchorsPerSecond = 25;
  static constexpr uint32_t kFractionBits = 32;  // of multiplier_

  // A cycle lasts no time, and no anchor is ever set.
  struct VirtualTag {};
  Clock(VirtualTag, uint64_t begin_ns)
      : anchor_cycles_(UINT64_MAX), multiplier_(0), anchor_ns_(begin_ns) {}

  void Anchor(uint64_t tsc) {
    anchor_tsc_ = tsc;
    anchor_ns_ = Monotonic();  // no system call: the vDSO
  }

  uint64_t anchor_cycles_;
  uint64_t multiplier_;  // ns per cycle, fixed point
  uint64_t anchor_tsc_ = 0;
  uint64_t anchor_ns_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace roci::dataplane
