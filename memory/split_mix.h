// SplitMix64: fast pseudorandom numbers that are the same for a seed on every machine. Not
// cryptographic. (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.)
#pragma once

#include <cstdint>

namespace roci::memory {

/// 2^64 and 2^32 divided by the golden ratio: odd multipliers that spread keys over the upper bits
/// of the product (Knuth, The Art of Computer Programming, 6.4).
inline constexpr uint64_t kGoldenRatio64 = 0x9E3779B97F4A7C15;
inline constexpr uint32_t kGoldenRatio32 = 0x9E3779B1;

class SplitMix {
 public:
  explicit constexpr SplitMix(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    state_ += kStep;
    return Mix(state_);
  }
  /// Result of the n-th call of Next for `seed`; n counts from 1.
  static constexpr uint64_t At(uint64_t seed, uint64_t n) { return Mix(seed + n * kStep); }

 private:
  static constexpr uint64_t kStep = kGoldenRatio64;

  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace roci::memory
