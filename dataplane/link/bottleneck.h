// A link of limited rate with a bounded queue in front of it. Its state is one number: the time
// when it will have sent all frames so far. Lcores share it without a lock; it reads no clock.
#pragma once

#include <atomic>
#include <cstdint>

#include "dataplane/types/impairment_settings.h"

namespace roci::dataplane {

class Bottleneck {
 public:
  // A frame takes its time on Ethernet, with the bytes that are not in its buffer: frame check
  // sequence, preamble and inter-frame gap (4 + 8 + 12 bytes), and at least 64 + 20 bytes (IEEE
  // 802.3, 4.2.7 and 3.2).
  static constexpr uint64_t kOverheadBytes = 24;
  static constexpr uint64_t kLeastWireBytes = 84;

  // `settings.rate_bps` must not be 0.
  explicit Bottleneck(const BottleneckSettings& settings);
  Bottleneck(const Bottleneck&) = delete;
  Bottleneck& operator=(const Bottleneck&) = delete;

  struct Passage {
    bool fits = false;       // the queue has room; if not, the other fields have no meaning
    bool waits = false;      // other frames are in the queue
    Chance marked = 0;       // probability of an ECN mark
    uint64_t leaves_ns = 0;  // time until its last byte is sent
  };
  // Enqueues a frame, or `copies` of it one after the other. The clocks of lcores may differ by
  // some microseconds. A frame of any length fits into an empty queue.
  Passage Enter(uint32_t frame_bytes, uint32_t copies, uint64_t now_ns);

 private:
  // Ticks are parts of a nanosecond, for exact times of short frames at high rates; 2^64 ticks are
  // nine years.
  static constexpr uint64_t kTicksPerNs = 64;
  uint64_t TicksOf(uint64_t bytes) const;
  Chance ChanceOfMark(uint64_t backlog_ticks) const;

  const uint64_t rate_bps_;
  const uint64_t queue_ticks_;
  const uint64_t ecn_ticks_;
  const uint64_t ecn_all_ticks_;
  std::atomic<uint64_t> free_at_{0};  // ticks
};

}  // namespace roci::dataplane
