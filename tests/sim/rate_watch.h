// Holds the frames of a requester against the rate limit of its queue pair: a token bucket that is
// empty at first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "roce/work.h"

namespace roci::sim {

class RateWatch {
 public:
  // `kbps` 0: no limit. `burst_bytes` 0: what the rate makes in 10 ms.
  RateWatch(uint32_t kbps, uint32_t burst_bytes) : bits_per_ms_(kbps), most_(8.0 * burst_bytes) {
    if (burst_bytes == 0) most_ = bits_per_ms_ * kDefaultBurstMs;
  }

  // A frame of `bytes` goes out. It may begin when the ones before it are paid for.
  std::optional<std::string> NoteFrame(roce::TimeNs now, size_t bytes) {
    if (bits_per_ms_ == 0) return std::nullopt;
    if (last_ != 0) {
      const double earned = bits_per_ms_ * static_cast<double>(now - last_) / 1e6;
      tokens_ = std::min(tokens_ + earned, most_);
    }
    last_ = now;
    if (tokens_ < -kRoundingBits) {
      return "exceeds its rate limit by " + std::to_string(-tokens_ / 8) + " bytes";
    }
    // What an IPv6 header is longer than one of IPv4 does not count (roce/requester_inl.h).
    tokens_ -= 8.0 * static_cast<double>(bytes - std::min<size_t>(bytes, kUncountedBytes));
    return std::nullopt;
  }

 private:
  static constexpr double kDefaultBurstMs = 10;
  static constexpr double kRoundingBits = 8;
  static constexpr size_t kUncountedBytes = 20;
  const double bits_per_ms_;
  double most_;
  double tokens_ = 0;  // bits
  roce::TimeNs last_ = 0;
};

}  // namespace roci::sim
