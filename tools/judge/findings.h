// The findings of the judge: bounded lists and exact counts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "roce/types.h"
#include "tools/judge/rules.h"
#include "tools/judge/seen_frame.h"

namespace roci::tools::judge {

// kUnsure: the capture may lack frames that would explain it. kIfWhole: sure if the capture lacks
// none by its own account, which it may give at its end.
enum class Certainty : uint8_t { kSure, kIfWhole, kUnsure };

struct Finding {
  Rule rule{};
  Certainty certainty{};
  uint64_t frame = 0;
  bool has_time = false;
  int64_t time_ns = 0;
  roce::Gid src, dst;
  uint32_t dest_qpn = 0;
  std::string detail;
};

// The frame that a finding is about; kept while its judgement is open.
struct FrameRef {
  uint64_t number = 0;
  bool has_time = false;
  int64_t time_ns = 0;

  static FrameRef Of(const SeenFrame& frame) {
    return {frame.number, frame.has_time, frame.time_ns};
  }
};

// The direction of a conversation, as findings name it.
struct FlowName {
  roce::Gid src, dst;
  uint32_t dest_qpn = 0;
  friend bool operator==(const FlowName&, const FlowName&) = default;
};

class Findings {
 public:
  // Limits of stored findings per rule: of one flow, of all flows. Further findings are only
  // counted.
  static constexpr uint32_t kMostPerFlow = 10;
  static constexpr uint32_t kMostPerRule = 1000;

  explicit Findings(uint32_t most_per_flow = kMostPerFlow) : most_per_flow_(most_per_flow) {}

  // `said`: the flow's own count for this rule. Returns whether a text is wanted: Add only then.
  bool Count(Rule rule, Certainty certainty, uint32_t& said);
  void Add(Rule rule, Certainty certainty, const FrameRef& frame, const FlowName& flow,
           std::string detail);

  // At the end: findings that hold for a whole capture become sure, or unsure.
  void Settle(bool is_whole);

  const std::vector<Finding>& list() const { return list_; }
  uint64_t count(Rule rule, Certainty certainty) const {
    return counts_[static_cast<size_t>(rule)][static_cast<size_t>(certainty)];
  }
  // Of all rules of a severity.
  uint64_t Total(Severity severity, Certainty certainty) const;

 private:
  uint32_t most_per_flow_;
  std::array<std::array<uint64_t, 3>, kRuleCount> counts_{};
  std::array<uint32_t, kRuleCount> kept_{};
  std::vector<Finding> list_;
};

}  // namespace roci::tools::judge
