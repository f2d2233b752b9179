// The goodput of one queue pair that sends long messages over a link that loses and reorders
// frames, in simulated time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "roce/work.h"
#include "tests/sim/connection.h"

namespace roci::sim {

struct BulkStream {
  roce::WorkOpcode opcode = roce::WorkOpcode::kRdmaWrite;  // or READ, SEND
  // Of both directions, in permille.
  uint32_t loss = 0;
  uint32_t reorder = 0;
  uint32_t reorder_wait_ns = 0;  // 0: go-back-N
  bool repeats_selectively = false;
  uint64_t seed = 1;

  static constexpr uint32_t kRateKbps = 10'000'000;
  static constexpr uint64_t kOneWayNs = 50'000;   // half of the round trip
  static constexpr uint64_t kReorderNs = 50'000;  // by which reordered frames are late
  static constexpr roce::TimeNs kRunNs = 40'000'000;
  static constexpr uint32_t kMessageBytes = 65536;
  static constexpr uint8_t kTimeout = 8;  // 1 ms
};

struct BulkResult {
  double mbps = 0;
  std::optional<std::string> wrong;  // a protocol violation, wrong bytes or an error completion
  uint64_t retransmitted = 0;        // request packets
  uint64_t lost = 0;                 // request packets, and responses to READs
  uint64_t kept = 0;                 // packets that waited for their turn
};

BulkResult Run(const BulkStream& stream);

}  // namespace roci::sim
