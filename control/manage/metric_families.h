// The metrics that the daemon serves: names, types and HELP texts, and where each value stands in
// the snapshot (metrics_snapshot.h), whose counters have the names of `roci show --json`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace roci::control {

enum class MetricType : uint8_t { kCounter, kGauge, kInfo, kHistogram };

struct MetricFamily {
  // Without "roci_" and "_total". A unit comes last: _bytes, _seconds.
  std::string name;
  MetricType type = MetricType::kCounter;
  std::string help;
  std::string list;    // the snapshot's array; its items get the labels of LabelsOf()
  std::string member;  // JSON pointer in an item
  // Name of the label that tells the members of the object at `member` apart; empty: `member` is a
  // number.
  std::string label;
  double scale = 1;  // by which the snapshot's number is multiplied
};

// In the order in which they are printed.
std::span<const MetricFamily> MetricFamilies();

}  // namespace roci::control
