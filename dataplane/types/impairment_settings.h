// The faults that a rule gives a link, and what a rule counts.
#pragma once

#include <cstdint>

#include "dataplane/types/frame_filter.h"
#include "roce/work.h"

namespace roci::dataplane {

// A probability in units of 2^-32: 0 is never, 2^32 always.
using Chance = uint64_t;
inline constexpr Chance kAlways = uint64_t{1} << 32;

struct BottleneckSettings {
  static constexpr uint64_t kLeastRateBps = 100'000;
  static constexpr uint64_t kMostRateBps = 1'000'000'000'000;
  // The longest time in the queue.
  static constexpr uint64_t kMostQueueNs = 5'000'000'000;
  static constexpr uint64_t kDefaultQueueBytes = uint64_t{1} << 20;

  uint64_t rate_bps = 0;  // 0: no limit
  uint64_t queue_bytes = 0;
  // ECN marking by queue length, as in switches (RED): none below the first length, then with a
  // probability that grows to kMostMarked at the second length, and always above. 0: no marking.
  uint64_t ecn_bytes = 0;
  uint64_t ecn_all_bytes = 0;
  static constexpr Chance kMostMarked = kAlways / 20;

  // The longest queue that is allowed for a rate. In bytes, rounded up.
  static uint64_t MostQueueBytes(uint64_t rate_bps) {
    return (rate_bps * (kMostQueueNs / roce::kNsPerSecond) + 7) / 8;
  }
};

struct ImpairmentSettings {
  // The longest time for which a rule holds a frame because of delay, of reordering, and (about) of
  // rate, each. The times of a device's rules (LinkTap::kMaxRules) add up.
  static constexpr uint64_t kMaxDelayNs = BottleneckSettings::kMostQueueNs;

  LinkDirection direction = LinkDirection::kOut;
  FrameFilter filter;
  Chance loss = 0;
  Chance duplicate = 0;
  Chance corrupt = 0;  // flips one bit behind the Ethernet header
  Chance reorder = 0;  // held back for `reorder_ns`, so that later frames overtake it
  Chance ecn = 0;      // sets CE on ECN-capable packets (RFC 3168)
  uint64_t delay_ns = 0;
  uint64_t reorder_ns = 100'000;
  BottleneckSettings bottleneck;
  uint64_t seed = 0;

  bool DoesSomething() const {
    return (loss | duplicate | corrupt | reorder | ecn | delay_ns | bottleneck.rate_bps) != 0;
  }
};

// X(member, name)
#define ROCI_IMPAIRMENT_COUNTERS(X)                           \
  X(matched, "matched")                                       \
  X(lost, "lost")                                             \
  X(delayed, "delayed")                                       \
  X(reordered, "reordered")                                   \
  X(duplicated, "duplicated")                                 \
  X(corrupted, "corrupted")                                   \
  X(ecn_marked, "ecn_marked")                                 \
  /* By the rate: had to wait for others; did not fit */      \
  X(rate_delayed, "rate_delayed")                             \
  X(rate_dropped, "rate_dropped")                             \
  /* Frames that the queue of delayed ones had no room for */ \
  X(queue_full, "queue_full")

struct ImpairmentSnapshot {
#define ROCI_IMPAIRMENT_VALUE(member, name) uint64_t member = 0;
  ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_VALUE)
#undef ROCI_IMPAIRMENT_VALUE
};

}  // namespace roci::dataplane
