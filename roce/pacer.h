// Holds a queue pair's packets to a rate: a token bucket as a time before which nothing goes. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "roce/work.h"

namespace roci::roce {

class Pacer {
 public:
  // `kbps` 0: no limit. `burst_bytes` may go at once after a pause, or after the caller was kept
  // from asking in time; 0: what the rate makes in kDefaultBurstNs. Nothing is saved up at first.
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
  // Nothing may go before wake_time().
  bool waiting() const { return waiting_; }
  TimeNs wake_time() const { return waiting_ ? next_ : kNever; }

  // Whether a packet may go at `now`; if not, the pacer is waiting.
  bool MayGo(TimeNs now) {
    waiting_ = next_ > now;
    return !waiting_;
  }
  // One of `bytes` goes.
  void Charge(TimeNs now, uint32_t bytes) {
    const TimeNs credit = fresh_ ? 0 : std::min<TimeNs>(credit_ns_, now);
    fresh_ = false;
    next_ = std::max(next_, now - credit);
    const uint64_t cost = uint64_t{bytes} * kNsPerByteOf1Kbps + rest_;
    next_ += cost / kbps_;
    rest_ = static_cast<uint32_t>(cost % kbps_);
  }
  // What went is not paid for: the next packet has to wait.
  bool IsSpent(TimeNs now) const { return next_ > now; }
  void HandleTimeout(TimeNs now) {
    if (next_ <= now) waiting_ = false;
  }
  void StopWaiting() { waiting_ = false; }

  static constexpr uint64_t kDefaultBurstNs = 10'000'000;

 private:
  static constexpr uint64_t kNsPerByteOf1Kbps = 8'000'000;
  TimeNs next_ = 0;         // when the bytes sent so far are paid for
  uint64_t credit_ns_ = 0;  // how much of the past may be used up
  uint32_t kbps_ = 0;
  uint32_t rest_ = 0;  // of the division by kbps_
  bool waiting_ = false;
  bool fresh_ = true;  // nothing went since Set
};

}  // namespace roci::roce
