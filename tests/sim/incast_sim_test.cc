// Eight senders to one port: congestion control gives them equal shares, with no loss on a lossless
// wire and little on a lossy one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/sim/incast.h"

namespace roci::sim {
namespace {

constexpr roce::TimeNs kMs = 1'000'000;
constexpr roce::TimeNs kRun = 120 * kMs;

std::vector<uint64_t> Received(const Incast& incast, uint32_t senders) {
  std::vector<uint64_t> bytes;
  for (uint32_t i = 0; i < senders; ++i) bytes.push_back(incast.received_bytes(i));
  return bytes;
}

// Fairness index (Jain, Chiu, Hawe): 1 if all rates are equal, 1/n if one sender has it all.
double Fairness(const std::vector<uint64_t>& before, const std::vector<uint64_t>& after) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const auto share = static_cast<double>(after[i] - before[i]);
    sum += share;
    squares += share * share;
  }
  return sum * sum / (static_cast<double>(after.size()) * squares);
}

struct Outcome {
  double fairness;      // in the second half
  double goodput;       // share of the port's rate, in the whole run
  double late_goodput;  // the same in the second half
};

uint64_t Sum(const std::vector<uint64_t>& values) {
  uint64_t sum = 0;
  for (const uint64_t value : values) sum += value;
  return sum;
}

Outcome Measure(Incast& incast, const IncastConfig& config) {
  incast.RunUntil(kRun / 2);
  const std::vector<uint64_t> half = Received(incast, config.senders);
  incast.RunUntil(kRun);
  const std::vector<uint64_t> all = Received(incast, config.senders);
  const double most = static_cast<double>(config.rate_kbps) / 8 * (static_cast<double>(kRun) / kMs);
  Outcome out{Fairness(half, all), static_cast<double>(Sum(all)) / most,
              static_cast<double>(Sum(all) - Sum(half)) * 2 / most};
  std::printf(
      "fairness %.3f, goodput %.3f, late %.3f, lost %llu, marked %llu, pauses %llu, longest queue "
      "%llu\n",
      out.fairness, out.goodput, out.late_goodput, static_cast<unsigned long long>(incast.lost()),
      static_cast<unsigned long long>(incast.marked()),
      static_cast<unsigned long long>(incast.pauses()),
      static_cast<unsigned long long>(incast.longest_queue_bytes()));
  return out;
}

IncastConfig Lossless(uint64_t seed) {
  IncastConfig config;
  config.seed = seed;
  config.pause_from_bytes = 200'000;
  return config;
}

IncastConfig Lossy(uint64_t seed) {
  IncastConfig config;
  config.seed = seed;
  return config;
}

class IncastSim : public ::testing::TestWithParam<uint64_t> {};

TEST_P(IncastSim, SharesAreFairAndNothingIsLostOnALosslessWire) {
  const IncastConfig config = Lossless(GetParam());
  Incast incast(config);
  const Outcome outcome = Measure(incast, config);
  EXPECT_GE(outcome.fairness, 0.95);
  EXPECT_GE(outcome.goodput, 0.9);
  EXPECT_EQ(incast.lost(), 0u);
  EXPECT_GT(incast.marked(), 0u);
  for (uint32_t i = 0; i < config.senders; ++i) {
    EXPECT_EQ(incast.sender(i).count(roce::QpCounter::kRetransmittedPackets), 0u);
    EXPECT_GT(incast.sender(i).count(roce::QpCounter::kCnpsHandled), 0u);
    EXPECT_EQ(incast.sender(i).count(roce::QpCounter::kCnpsHandled),
              incast.receiver(i).count(roce::QpCounter::kCnpsSent));
  }
}

TEST_P(IncastSim, ALossyWireCarriesFourFifths) {
  const IncastConfig config = Lossy(GetParam());
  Incast incast(config);
  const Outcome outcome = Measure(incast, config);
  EXPECT_GE(outcome.fairness, 0.95);
  EXPECT_GE(outcome.goodput, 0.8);
  EXPECT_GT(incast.lost(), 0u) << "the buffer is so large that nothing is tested";
}

INSTANTIATE_TEST_SUITE_P(Seeds, IncastSim, ::testing::Values(1, 2, 3));

// The baseline: without congestion control the lossless switch depends on pauses, and the lossy one
// drops many packets.
TEST(IncastWithoutCongestionControl, PausesAndLosses) {
  IncastConfig config = Lossless(1);
  config.congestion_control = false;
  Incast lossless(config);
  Measure(lossless, config);
  EXPECT_EQ(lossless.lost(), 0u);
  EXPECT_EQ(lossless.marked(), 0u) << "nobody said that marks are heeded";
  Incast controlled(Lossless(1));
  Measure(controlled, Lossless(1));
  EXPECT_LT(controlled.pauses() * 10, lossless.pauses());
}

TEST(IncastSimulation, IsTheSameEachTime) {
  Incast one(Lossy(7)), other(Lossy(7));
  one.RunUntil(5 * kMs);
  other.RunUntil(5 * kMs);
  EXPECT_EQ(Received(one, 8), Received(other, 8));
  EXPECT_EQ(one.marked(), other.marked());
}

}  // namespace
}  // namespace roci::sim
