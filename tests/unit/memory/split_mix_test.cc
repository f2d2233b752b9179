#include "memory/split_mix.h"

#include <gtest/gtest.h>

#include <array>

namespace roci::memory {
namespace {

// Output of the reference implementation (splitmix64.c, Vigna) for seed 0.
TEST(SplitMixTest, GivesTheKnownNumbers) {
  constexpr std::array<uint64_t, 4> kNumbers{0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4,
                                             0x06C45D188009454F, 0xF88BB8A8724C81EC};
  SplitMix random(0);
  uint64_t n = 0;
  for (const uint64_t expected : kNumbers) {
    EXPECT_EQ(random.Next(), expected);
    EXPECT_EQ(SplitMix::At(0, ++n), expected);
  }
}

}  // namespace
}  // namespace roci::memory
