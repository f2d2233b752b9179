// Rate limit of a queue pair: a token bucket, stored as the earliest time of the next packet. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "roce/work.h"

namespace roci::roce {

class Pacer {
 public:
  // `kbps` 0: no limit. `burst_bytes` may be sent at once after a pause, or after the caller asked
  // late; 0: the bytes of kDefaultBurstNs at that rate. The bucket starts empty.
  void Set(uint32_t kbps, uint32_t burst_bytes) {
    kbps_ = kbps;
    rest_ = 0;
    next_ = 0;
    waiting_ = false;
    fresh_ = true;
    if (kbps == 0) return;
    credit_ns_ =
        burst_bytes == 0 ? kDefaultBurstNs : uint64_t{burst_bytes} * kNsPerByteOf1Kbps / kbps;
  }
  bool limited() const { return kbps_ != 0; }
  // No packet may be sent before wake_time().
  bool waiting() const { return waiting_; }
  TimeNs wake_time() const { return waiting_ ? next_ : kNever; }

  // Whether a packet may be sent at `now`; if not, the pacer is waiting.
  bool MayGo(TimeNs now) {
    waiting_ = next_ > now;
    return !waiting_;
  }
  // A packet of `bytes` is sent.
  void Charge(TimeNs now, uint32_t bytes) {
    const TimeNs credit = fresh_ ? 0 : std::min<TimeNs>(credit_ns_, now);
    fresh_ = false;
    next_ = std::max(next_, now - credit);
    const uint64_t cost = uint64_t{bytes} * kNsPerByteOf1Kbps + rest_;
    next_ += cost / kbps_;
    rest_ = static_cast<uint32_t>(cost % kbps_);
  }
  // The tokens are used up: the next packet has to wait.
  bool IsSpent(TimeNs now) const { return next_ > now; }
  void HandleTimeout(TimeNs now) {
    if (next_ <= now) waiting_ = false;
  }
  void StopWaiting() { waiting_ = false; }

  static constexpr uint64_t kDefaultBurstNs = 10'000'000;

 private:
  TimeNs next_ = 0;         // earliest time of the next packet
  uint64_t credit_ns_ = 0;  // burst allowance
  uint32_t kbps_ = 0;
  uint32_t rest_ = 0;  // remainder of the division by kbps_
  bool waiting_ = false;
  bool fresh_ = true;  // nothing sent since Set
};

}  // namespace roci::roce
