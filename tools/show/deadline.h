// The end of a command that follows a stream of the daemon.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace roci::tools {

// max(): none.
using Deadline = std::chrono::steady_clock::time_point;

// Milliseconds until `deadline`, at most an hour, for poll(2); -1: there is none.
inline int WaitMs(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace roci::tools
