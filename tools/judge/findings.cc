#include "tools/judge/findings.h"

#include <utility>

namespace roci::tools::judge {

bool Findings::Count(Rule rule, Certainty certainty, uint32_t& said) {
  const auto index = static_cast<size_t>(rule);
  ++counts_[index][static_cast<size_t>(certainty)];
  // A habit of a sender is said once.
  const uint32_t most = RowOf(rule).severity == Severity::kViolation ? most_per_flow_ : 1;
  if (said >= most || kept_[index] >= kMostPerRule) return false;
  ++said;
  ++kept_[index];
  return true;
}

void Findings::Add(Rule rule, Certainty certainty, const FrameRef& frame, const FlowName& flow,
                   std::string detail) {
  list_.push_back({.rule = rule,
                   .certainty = certainty,
                   .frame = frame.number,
                   .has_time = frame.has_time,
                   .time_ns = frame.time_ns,
                   .src = flow.src,
                   .dst = flow.dst,
                   .dest_qpn = flow.dest_qpn,
                   .detail = std::move(detail)});
}

void Findings::Settle(bool is_whole) {
  const Certainty settled = is_whole ? Certainty::kSure : Certainty::kUnsure;
  for (auto& of_rule : counts_) {
    uint64_t& open = of_rule[static_cast<size_t>(Certainty::kIfWhole)];
    of_rule[static_cast<size_t>(settled)] += open;
    open = 0;
  }
  for (Finding& finding : list_) {
    if (finding.certainty == Certainty::kIfWhole) finding.certainty = settled;
  }
}

uint64_t Findings::Total(Severity severity, Certainty certainty) const {
  uint64_t total = 0;
  for (size_t i = 0; i < kRuleCount; ++i) {
    if (kRules[i].severity == severity) total += counts_[i][static_cast<size_t>(certainty)];
  }
  return total;
}

}  // namespace roci::tools::judge
