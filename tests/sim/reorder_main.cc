// Prints as JSON the goodput of WRITEs and READs over a simulated link by how many frames it
// reorders or loses, for go-back-N, with tolerance of reordering, and with selective repeat.
//
//   reorder [seed]
//
// tools/bench plots the output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "tests/sim/bulk_stream.h"

namespace {

namespace roce = roci::roce;
namespace sim = roci::sim;

constexpr uint32_t kPermille[] = {0, 1, 5, 10, 20, 30, 40, 50};
constexpr uint32_t kWaitNs = 200'000;  // the default of reorder_wait_us

struct Setting {
  const char* name;
  bool tolerates;
  bool repeats_selectively;
};
constexpr Setting kSettings[] = {
    {"go-back-N", false, false}, {"tolerate", true, false}, {"selective", true, true}};

// False: a run went wrong.
bool PrintCurve(const char* what, const char* name, sim::BulkStream stream,
                uint32_t sim::BulkStream::*fault, const char* end) {
  std::printf("  \"%s, %s\": [", what, name);
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
    for (const Setting& setting : kSettings) {
      const sim::BulkStream stream{.opcode = opcode,
                                   .reorder_wait_ns = setting.tolerates ? kWaitNs : 0,
                                   .repeats_selectively = setting.repeats_selectively,
                                   .seed = seed};
      const char* end = &setting == std::end(kSettings) - 1 ? "" : ",";
      is_good &= PrintCurve("reordered", setting.name, stream, &sim::BulkStream::reorder, ",");
      is_good &= PrintCurve("lost", setting.name, stream, &sim::BulkStream::loss, end);
    }
    std::printf(" }%s\n", is_read ? "" : ",");
  }
  std::printf("}\n");
  return is_good ? 0 : 1;
}
