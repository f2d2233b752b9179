// Checks the frames of a requester against the rate limit of its queue pair: a token bucket that
// starts empty.
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
  // A rate limit counts IPv6 frames as if they were IPv4 frames.
  static constexpr size_t kIpv6Excess = 20;

  // `kbps` 0: no limit. `burst_bytes` 0: the bytes of 10 ms at this rate. The limit ignores
  // `uncounted_bytes` of each frame.
  RateWatch(uint32_t kbps, uint32_t burst_bytes, size_t uncounted_bytes)
      : bits_per_ms_(kbps), most_(8.0 * burst_bytes), uncounted_bytes_(uncounted_bytes) {
    if (burst_bytes == 0) most_ = bits_per_ms_ * kDefaultBurstMs;
  }

  // A frame of `bytes` is sent. It may start once the tokens cover all frames before it.
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
    tokens_ -= 8.0 * static_cast<double>(bytes - uncounted_bytes_);
    return std::nullopt;
  }

 private:
  static constexpr double kDefaultBurstMs = 10;
  static constexpr double kRoundingBits = 8;
  const double bits_per_ms_;
  double most_;
  const size_t uncounted_bytes_;
  double tokens_ = 0;  // bits
  roce::TimeNs last_ = 0;
};

}  // namespace roci::sim
