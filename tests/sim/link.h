// A simulated link with faults: frames are delayed, duplicated, damaged or lost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "roce/work.h"
#include "tests/sim/marks.h"
#include "tests/sim/random.h"

namespace roci::sim {

// Probabilities in permille; times in nanoseconds.
struct LinkFaults {
  uint32_t loss = 0;
  uint32_t duplicate = 0;
  uint32_t corrupt = 0;
  uint32_t mark = 0;     // ECN mark (CE), as by a switch with a long queue
  uint32_t reorder = 0;  // additional delay of `reorder_delay_ns`
  uint64_t reorder_delay_ns = 0;
  uint64_t delay_ns = 1000;  // of every frame
  uint64_t jitter_ns = 0;    // random additional delay, 0..jitter_ns
  uint32_t rate_kbps = 0;    // of the link; 0: frames take no time
};

// One direction. Frames with the same delivery time arrive in the order in which they were sent.
class Link {
 public:
  void set_faults(const LinkFaults& faults) { faults_ = faults; }

  // When the link has sent the frames so far. A sender waits for that.
  roce::TimeNs free_at() const { return free_at_; }

  void Send(roce::TimeNs now, std::vector<std::byte> frame, Random& random) {
    if (faults_.rate_kbps != 0) {
      now = std::max(now, free_at_) + frame.size() * roce::kNsPerByteOf1Kbps / faults_.rate_kbps;
      free_at_ = now;
    }
    if (random.Chance(faults_.loss)) {
      ++lost_;
      return;
    }
    if (faults_.mark != 0 && random.Chance(faults_.mark)) MarkFrame(frame);
    if (random.Chance(faults_.duplicate)) Enqueue(now, frame, random);
    if (random.Chance(faults_.corrupt)) Damage(frame, random);
    Enqueue(now, std::move(frame), random);
  }

  bool empty() const { return frames_.empty(); }
  roce::TimeNs NextDelivery() const {
    return frames_.empty() ? roce::kNever : frames_.begin()->first.first;
  }
  std::vector<std::byte> Take() {
    std::vector<std::byte> frame = std::move(frames_.begin()->second);
    frames_.erase(frames_.begin());
    return frame;
  }
  uint64_t lost() const { return lost_; }

 private:
  void Enqueue(roce::TimeNs now, std::vector<std::byte> frame, Random& random) {
    roce::TimeNs at = now + faults_.delay_ns + random.Below(faults_.jitter_ns + 1);
    if (random.Chance(faults_.reorder)) at += faults_.reorder_delay_ns;
    frames_.emplace(std::pair(at, sequence_++), std::move(frame));
  }
  static void Damage(std::vector<std::byte>& frame, Random& random) {
    const uint64_t flips = random.Between(1, 3);
    for (uint64_t i = 0; i < flips; ++i) {
      frame[random.Below(frame.size())] ^= static_cast<std::byte>(1U << random.Below(8));
    }
  }

  LinkFaults faults_;
  roce::TimeNs free_at_ = 0;
  std::map<std::pair<roce::TimeNs, uint64_t>, std::vector<std::byte>> frames_;
  uint64_t sequence_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace roci::sim
