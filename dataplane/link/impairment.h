// The faults of a bad link: loss, delay, reordering, duplication, corruption and congestion marks,
// drawn from a seed, and a limited rate, which depends on time. Uses no port and reads no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/link/bottleneck.h"
#include "dataplane/link/frame_filter.h"
#include "memory/split_mix.h"

namespace roci::dataplane {

struct ImpairmentSettings {
  // The longest time for which a rule holds a frame because of delay, of reordering, and (about) of
  // rate, each. The times of a device's rules (LinkTap::kMaxRules) add up.
  static constexpr uint64_t kMaxDelayNs = 5'000'000'000;

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

struct ImpairmentCounters {
#define ROCI_IMPAIRMENT_COUNTER(member, name) Counter member;
  ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_COUNTER)
#undef ROCI_IMPAIRMENT_COUNTER
};

struct ImpairmentSnapshot {
#define ROCI_IMPAIRMENT_VALUE(member, name) uint64_t member = 0;
  ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_VALUE)
#undef ROCI_IMPAIRMENT_VALUE

  void Add(const ImpairmentCounters& lane) {
#define ROCI_IMPAIRMENT_ADD(member, name) member += lane.member.value();
    ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_ADD)
#undef ROCI_IMPAIRMENT_ADD
  }
};

// A frame that enters a rule.
struct FrameArrival {
  uint64_t now_ns = 0;
  uint32_t bytes = 0;    // of the whole frame
  bool has_room = true;  // the delay queue has room for it
};

// The decision about a frame.
struct FrameFate {
  bool lost = false;
  bool duplicated = false;
  uint64_t delay_ns = 0;  // sum over all rules
  uint64_t queue_ns = 0;  // maximum over the rates of all rules
  uint64_t hold_ns() const { return delay_ns + queue_ns; }
};

// One rule on one lcore. The n-th matching frame has the same fate in every run with the same seed
// and lcore, except for the effect of the rate, which depends on time.
class Impairment {
 public:
  // `bottleneck` is shared by the rule on all lcores; null: the rule has no rate.
  Impairment(const ImpairmentSettings& settings, uint32_t lcore, Bottleneck* bottleneck = nullptr);

  // Adds to `fate`, and corrupts or marks `frame` (the first segment) in place. Must not be called
  // for a frame that an earlier rule has lost.
  void Apply(std::span<std::byte> frame, const FrameArrival& arrival, FrameFate& fate);

  ImpairmentCounters& counters() { return counters_; }
  const ImpairmentCounters& counters() const { return counters_; }

 private:
  bool Happens(Chance chance) { return Draw() < chance; }
  uint64_t Draw() { return random_.Next() >> 32; }
  bool PassBottleneck(const FrameArrival& arrival, FrameFate& fate, Chance& marked);
  void CorruptOneBit(std::span<std::byte> frame, uint64_t number);

  const ImpairmentSettings& settings_;
  memory::SplitMix random_;
  Bottleneck* bottleneck_;
  ImpairmentCounters counters_;
};

// Sets CE in the IP header and updates the IPv4 checksum. False: the packet is not ECN-capable.
bool MarkCongestion(std::span<std::byte> frame);

}  // namespace roci::dataplane
