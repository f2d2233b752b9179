// A flow rule of a raw packet queue pair, and what it counts.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/counters.h"
#include "dataplane/base/limits.h"
#include "roce/flow_key.h"

namespace roci::dataplane {

class QueuePair;

// A counters object: frames and their bytes, per lcore.
struct FlowCounters {
  struct PerLcore {
    Counter packets;
    Counter bytes;
  };
  std::array<PerLcore, kMaxLcores> lcores;
};

// Values are those of enum ibv_flow_attr_type.
enum class FlowKind : uint8_t { kNormal = 0, kAllDefault = 1, kMulticastDefault = 2, kSniffer = 3 };

// A device keeps a copy of each rule, of which only `counters` may change while it is in a table.
struct FlowRule {
  FlowKind kind = FlowKind::kNormal;
  uint16_t priority = 0;    // normal rules: 0 goes first
  bool passes_on = false;   // normal rules: rules of lower priority may match the frame too
  bool drops = false;       // consumes the frame without delivery
  uint32_t tag = 0;         // for the completion
  roce::FlowKey mask{};     // normal rules only
  roce::FlowKey value{};    // nothing outside of `mask`
  QueuePair* qp = nullptr;  // outlives the rule
  FlowCounters* counters = nullptr;  // may be null; may be set while lcores read it
};

}  // namespace roci::dataplane
