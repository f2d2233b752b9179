// Prints metrics as Prometheus and others read them. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace roci::control {

enum class MetricsFormat : uint8_t {
  kOpenMetrics,  // application/openmetrics-text; version=1.0.0
  kPrometheus,   // text/plain; version=0.0.4
};

// `snapshot`: from SnapshotMetrics(). Values that it lacks are left out.
std::string MetricsText(const nlohmann::json& snapshot, MetricsFormat format);

}  // namespace roci::control
