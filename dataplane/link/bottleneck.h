// A link of a limited rate with a bounded queue in front of it, as one number: when it will have
// sent all that it was given. Lcores share it, without a lock; it reads no clock.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::dataplane {

// A probability in parts of 2^32: 0 never, 2^32 always.
using Chance = uint64_t;
inline constexpr Chance kAlways = uint64_t{1} << 32;

struct BottleneckSettings {
  static constexpr uint64_t kLeastRateBps = 100'000;
  static constexpr uint64_t kMostRateBps = 1'000'000'000'000;
  // What fits in the queue is sent within this time.
  static constexpr uint64_t kMostQueueNs = 5'000'000'000;
  static constexpr uint64_t kDefaultQueueBytes = uint64_t{1} << 20;

  uint64_t rate_bps = 0;  // 0: no limit
  uint64_t queue_bytes = 0;
  // Frames that find so much in the queue are to be marked with a chance that grows up to
  // kMostMarked at the second length, and all that find more; as switches do (RED). 0: none.
  uint64_t ecn_bytes = 0;
  uint64_t ecn_all_bytes = 0;
  static constexpr Chance kMostMarked = kAlways / 20;

  // The longest queue that a rate may have.
  static uint64_t MostQueueBytes(uint64_t rate_bps) {
    return (rate_bps * (kMostQueueNs / 1'000'000'000) + 7) / 8;
  }
};

class Bottleneck {
 public:
  // A frame takes the time that it would on Ethernet, with what is not in its buffer: frame check
  // sequence, preamble and the gap to the next (4 + 8 + 12 bytes), and at least 64 + 20 bytes (IEEE
  // 802.3, 4.2.7 and 3.2).
  static constexpr uint64_t kOverheadBytes = 24;
  static constexpr uint64_t kLeastWireBytes = 84;

  // `settings` has a rate.
  explicit Bottleneck(const BottleneckSettings& settings);
  Bottleneck(const Bottleneck&) = delete;
  Bottleneck& operator=(const Bottleneck&) = delete;

  struct Passage {
    bool fits = false;       // in the queue; the others are meaningless without
    bool waits = false;      // for frames before it
    Chance marked = 0;       // of being marked
    uint64_t leaves_ns = 0;  // so long from now its last byte is sent
  };
  // A frame comes, `copies` of it one after the other. Times of several lcores may be some
  // microseconds apart. What finds the queue empty fits, however long it is.
  Passage Enter(uint32_t frame_bytes, uint32_t copies, uint64_t now_ns);

 private:
  // Parts of a nanosecond, so that short frames at high rates come out right; 2^64 of them are nine
  // years.
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
