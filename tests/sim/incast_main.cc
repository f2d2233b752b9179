// Prints as JSON the rates, queue length and losses over time, for senders that share one port of a
// simulated switch.
//
//   incast [senders] [milliseconds] [seed]
//
// tools/bench plots the output.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sim/incast.h"

namespace {

namespace roce = roci::roce;
namespace sim = roci::sim;

constexpr roce::TimeNs kStepNs = 500'000;

using Row = std::vector<uint64_t>;

void PrintRow(const char* name, const Row& row, const char* end) {
  std::printf("   \"%s\": [", name);
  for (size_t i = 0; i < row.size(); ++i) {
    std::printf("%s%llu", i == 0 ? "" : ", ", static_cast<unsigned long long>(row[i]));
  }
  std::printf("]%s\n", end);
}

// Prints the data received from each sender and the queue length, in steps of kStepNs.
void Print(const char* name, const sim::IncastConfig& config, uint32_t steps) {
  sim::Incast incast(config);
  std::vector<Row> received(config.senders);
  Row queued;
  Row before(config.senders, 0);
  for (uint32_t step = 1; step <= steps; ++step) {
    incast.RunUntil(step * kStepNs);
    for (uint32_t i = 0; i < config.senders; ++i) {
      received[i].push_back(incast.received_bytes(i) - before[i]);
      before[i] = incast.received_bytes(i);
    }
    queued.push_back(incast.queued_bytes());
  }
  std::printf("  \"%s\": {\n   \"rate_kbps\": %u,\n   \"step_us\": %llu,\n", name, config.rate_kbps,
              static_cast<unsigned long long>(kStepNs / 1000));
  for (uint32_t i = 0; i < config.senders; ++i) {
    PrintRow(("received_bytes_" + std::to_string(i)).c_str(), received[i], ",");
  }
  PrintRow("queued_bytes", queued, ",");
  std::printf(
      "   \"longest_queue_bytes\": %llu,\n   \"lost\": %llu,\n   \"marked\": %llu,\n"
      "   \"pauses\": %llu\n  }",
      static_cast<unsigned long long>(incast.longest_queue_bytes()),
      static_cast<unsigned long long>(incast.lost()),
      static_cast<unsigned long long>(incast.marked()),
      static_cast<unsigned long long>(incast.pauses()));
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 0) : otherwise;
  };
  sim::IncastConfig config;
  config.senders = static_cast<uint32_t>(number(1, 8));
  config.seed = number(3, 1);
  const uint64_t steps = number(2, 120) * 1'000'000 / kStepNs;
  if (config.senders == 0 || config.senders > 64 || steps == 0 || steps > 10'000) {
    std::fprintf(stderr, "incast: 1 to 64 senders, at most 5000 ms\n");
    return 2;
  }
  sim::IncastConfig lossless = config;
  lossless.pause_from_bytes = lossless.buffer_bytes / 3 * 2;
  std::printf("{\n  \"senders\": %u,\n", config.senders);
  Print("lossless", lossless, static_cast<uint32_t>(steps));
  std::printf(",\n");
  Print("lossy", config, static_cast<uint32_t>(steps));
  std::printf("\n}\n");
}
