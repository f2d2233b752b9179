// Prints as JSON the goodput of WRITEs and READs over a simulated link by how many frames it
// reorders or loses, for go-back-N and with tolerance of reordering.
//
//   reorder [seed]
//
// tools/bench plots the output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/bulk_stream.h"

namespace {

namespace roce = roci::roce;
namespace sim = roci::sim;

constexpr uint32_t kPermille[] = {0, 1, 5, 10, 20, 30, 40, 50};
constexpr uint32_t kWaitNs = 200'000;  // the default of reorder_wait_us

// False: a run went wrong.
bool PrintCurve(const char* name, sim::BulkStream stream, uint32_t sim::BulkStream::*fault,
                const char* end) {
  std::printf("  \"%s\": [", name);
  bool is_good = true;
  for (const uint32_t permille : kPermille) {
    stream.*fault = permille;
    const sim::BulkResult result = sim::Run(stream);
    is_good &= !result.wrong;
    std::printf("%s%.0f", permille == 0 ? "" : ", ", result.mbps);
  }
  std::printf("]%s\n", end);
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
  std::printf("{\"permille\": [");
  for (const uint32_t permille : kPermille)
    std::printf("%s%u", permille == 0 ? "" : ", ", permille);
  std::printf("],\n");
  bool is_good = true;
  for (const bool is_read : {false, true}) {
    const auto opcode = is_read ? roce::WorkOpcode::kRdmaRead : roce::WorkOpcode::kRdmaWrite;
    std::printf(" \"%s\": {\n", is_read ? "READ" : "WRITE");
    for (const bool tolerates : {false, true}) {
      const sim::BulkStream stream{
          .opcode = opcode, .reorder_wait_ns = tolerates ? kWaitNs : 0, .seed = seed};
      is_good &= PrintCurve(tolerates ? "reordered, tolerate" : "reordered, go-back-N", stream,
                            &sim::BulkStream::reorder, ",");
      is_good &= PrintCurve(tolerates ? "lost, tolerate" : "lost, go-back-N", stream,
                            &sim::BulkStream::loss, tolerates ? "" : ",");
    }
    std::printf(" }%s\n", is_read ? "" : ",");
  }
  std::printf("}\n");
  return is_good ? 0 : 1;
}
