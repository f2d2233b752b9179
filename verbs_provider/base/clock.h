// Reads clocks in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace roci::provider {

inline constexpr uint64_t kNsPerMs = 1'000'000;
inline constexpr uint64_t kNsPerSecond = 1'000'000'000;

/// `clock`: one that every system has; the call cannot fail.
inline uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace roci::provider
