// Seeded random numbers of exactly 32 bits.
#pragma once

#include <cstdint>
#include <random>

namespace roci::roce {

class Rng {
 public:
  explicit Rng(uint32_t seed) : engine_(seed) {}
  uint32_t operator()() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

}  // namespace roci::roce
