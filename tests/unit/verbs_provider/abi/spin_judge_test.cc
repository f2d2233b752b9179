// When a waiting thread spins.
#include "verbs_provider/abi/spin_judge.h"

#include <gtest/gtest.h>

namespace roci::abi {
namespace {

// How many of `waits` spin, if every `nth` spin succeeds (0: none).
int Spins(SpinJudge& judge, int waits, int nth) {
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    if (!judge.Allows()) continue;
    ++spins;
    judge.Note(nth != 0 && spins % nth == 0);
  }
  return spins;
}

TEST(SpinJudge, SpinsWhileSpinsSucceed) {
  SpinJudge judge;
  EXPECT_EQ(Spins(judge, 1000, 1), 1000);
}

TEST(SpinJudge, HardlySpinsIfNoSpinSucceeds) {
  SpinJudge judge;
  EXPECT_LT(Spins(judge, 1000, 0), 25);
}

TEST(SpinJudge, HardlySpinsIfHalfOfTheSpinsSucceed) {
  SpinJudge judge;
  EXPECT_LT(Spins(judge, 1000, 2), 100);
}

TEST(SpinJudge, SpinsAgainWhenSpinsSucceedAgain) {
  SpinJudge judge;
  Spins(judge, 1000, 0);
  Spins(judge, 300, 1);
  EXPECT_EQ(Spins(judge, 100, 1), 100);
}

}  // namespace
}  // namespace roci::abi
