// Goodput on a link of 10 Gb/s with 100 us of round trip that loses or reorders frames, with and
// without tolerance of reordering.
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

// Prints goodput by frequency of the fault, 0 to 5%, for go-back-N and with tolerance.
void PrintCurve(const char* name, BulkStream stream, uint32_t BulkStream::*fault) {
  printf("%-24s go-back-N  tolerate (Mb/s)\n", name);
  for (const uint32_t permille : {0, 1, 5, 10, 20, 50}) {
    stream.*fault = permille;
    printf("  %4.1f%%                  %9.0f  %8.0f\n", permille / 10.0, Mbps(stream, 0),
           Mbps(stream, kWaitNs));
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

INSTANTIATE_TEST_SUITE_P(Operations, Reordering,
                         testing::Values(WorkOpcode::kRdmaWrite, WorkOpcode::kRdmaRead,
                                         WorkOpcode::kSend));

}  // namespace
}  // namespace roci::sim
