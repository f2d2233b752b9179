// When a fault hits: in which time, and which of the occasions (packets or calls) that match.
#pragma once

#include <atomic>
#include <cstdint>

#include "dataplane/types/impairment_settings.h"
#include "memory/split_mix.h"

namespace roci::dataplane {

struct FaultOccasions {
  // Times since the fault was added. `for_ns` 0: for ever.
  uint64_t after_ns = 0;
  uint64_t for_ns = 0;
  // First occasion (from 1), and the interval after it.
  uint64_t nth = 1;
  uint64_t every = 1;
  // Of these, as decided by the seed and the occasion's number.
  Chance chance = kAlways;
  uint64_t seed = 0;
  // Most occasions to hit. 0: no limit.
  uint64_t times = 0;

  bool IsInTime(uint64_t age_ns) const {
    return age_ns >= after_ns && (for_ns == 0 || age_ns - after_ns < for_ns);
  }
  // Whether an occasion is hit. `number`: among those that match, from 1. `hits`: those before it
  // that were hit.
  bool Takes(uint64_t number, uint64_t hits) const {
    if (times != 0 && hits >= times) return false;
    if (number < nth || (number - nth) % every != 0) return false;
    return chance == kAlways || memory::SplitMix::At(seed, number) >> 32 < chance;
  }
  // Counts an occasion that matches, and whether it is hit. Any thread.
  bool Count(std::atomic<uint64_t>& matched, std::atomic<uint64_t>& hits) const {
    const uint64_t number = matched.fetch_add(1, std::memory_order_relaxed) + 1;
    uint64_t hit = hits.load(std::memory_order_relaxed);
    do {
      if (!Takes(number, hit)) return false;
    } while (!hits.compare_exchange_weak(hit, hit + 1, std::memory_order_relaxed));
    return true;
  }
};

}  // namespace roci::dataplane
