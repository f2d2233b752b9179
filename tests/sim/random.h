// Seeded random numbers that are the same on every machine and with every compiler.
#pragma once

#include <cassert>
#include <cstdint>

#include "memory/split_mix.h"

namespace roci::sim {

// xoshiro256** (Blackman and Vigna, 2018), seeded through SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) {
    memory::SplitMix words(seed);
    for (uint64_t& word : state_) word = words.Next();
  }

  uint64_t Next() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound >= 1.
  uint64_t Below(uint64_t bound) {
    assert(bound > 0);
    return Next() % bound;
  }
  // Uniform in [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  // True with probability `permille` / 1000.
  bool Chance(uint32_t permille) { return Below(1000) < permille; }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace roci::sim
