// The faults of a bad link: loss, delay, reordering, duplication, corruption and congestion marks,
// drawn from a seed, and a limited rate, which depends on time. Uses no port and reads no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/counters.h"
#include "dataplane/link/bottleneck.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/types/impairment_settings.h"
#include "memory/split_mix.h"

namespace roci::dataplane {

struct ImpairmentCounters {
#define ROCI_IMPAIRMENT_COUNTER(member, name) Counter member;
  ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_COUNTER)
#undef ROCI_IMPAIRMENT_COUNTER
};

// Adds the counters of one lcore to the sum.
inline void Add(ImpairmentSnapshot& sum, const ImpairmentCounters& lane) {
#define ROCI_IMPAIRMENT_ADD(member, name) sum.member += lane.member.value();
  ROCI_IMPAIRMENT_COUNTERS(ROCI_IMPAIRMENT_ADD)
#undef ROCI_IMPAIRMENT_ADD
}

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
