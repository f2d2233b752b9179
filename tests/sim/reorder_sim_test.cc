// Goodput on a link of 10 Gb/s with 100 us of round trip that loses or reorders frames: by
// go-back-N, with tolerance of reordering, and by selective repeat.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

#include "roce/reorder_window.h"
#include "tests/sim/bulk_stream.h"

namespace roci::sim {
namespace {

using roce::WorkOpcode;

constexpr uint32_t kWaitNs = 200'000;

double Mbps(BulkStream stream, uint32_t reorder_wait_ns) {
  stream.reorder_wait_ns = reorder_wait_ns;
  const BulkResult result = Run(stream);
  EXPECT_FALSE(result.wrong.has_value()) << *result.wrong;
  return result.mbps;
}

BulkStream Selective(BulkStream stream) {
  stream.repeats_selectively = true;
  return stream;
}

// Prints goodput by frequency of the fault, 0 to 5%.
void PrintCurve(const char* name, BulkStream stream, uint32_t BulkStream::*fault) {
  printf("%-24s go-back-N  tolerate  selective (Mb/s)\n", name);
  for (const uint32_t permille : {0, 1, 5, 10, 20, 50}) {
    stream.*fault = permille;
    printf("  %4.1f%%                  %9.0f  %8.0f  %9.0f\n", permille / 10.0, Mbps(stream, 0),
           Mbps(stream, kWaitNs), Mbps(Selective(stream), kWaitNs));
  }
}

class Reordering : public testing::TestWithParam<WorkOpcode> {};

TEST_P(Reordering, Of5PercentCostsLessThanATenthOfGoodput) {
  const BulkStream clean{.opcode = GetParam()};
  BulkStream reordered = clean;
  reordered.reorder = 50;
  PrintCurve("reordered", clean, &BulkStream::reorder);
  PrintCurve("lost", clean, &BulkStream::loss);
  const double without = Mbps(clean, 0);
  EXPECT_GT(without, 0.9 * BulkStream::kRateKbps / 1000);
  EXPECT_LT(Mbps(reordered, 0), 0.7 * without) << "the fault does nothing";
  EXPECT_GE(Mbps(reordered, kWaitNs), 0.9 * without);
}

TEST_P(Reordering, SelectiveRepeatLosesLessThanATenthOfGoodputTo1PercentOfLoss) {
  const BulkStream clean{.opcode = GetParam()};
  BulkStream lossy = clean;
  lossy.loss = 10;
  const double without = Mbps(clean, 0);
  EXPECT_LT(Mbps(lossy, kWaitNs), 0.85 * without) << "the fault does nothing";
  EXPECT_GE(Mbps(Selective(lossy), kWaitNs), 0.9 * without);
  // It sends again what was lost, and again if that was lost, too. Go-back-N sends 30 times as
  // much.
  lossy.reorder_wait_ns = kWaitNs;
  const BulkResult result = sim::Run(Selective(lossy));
  EXPECT_GT(result.lost, 0u);
  EXPECT_LE(result.retransmitted, result.lost * 11 / 10 + 5);
}

INSTANTIATE_TEST_SUITE_P(Operations, Reordering,
                         testing::Values(WorkOpcode::kRdmaWrite, WorkOpcode::kRdmaRead,
                                         WorkOpcode::kSend));

}  // namespace
}  // namespace roci::sim
