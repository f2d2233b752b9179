#include "control/config/congestion_config.h"

#include <algorithm>
#include <iterator>

#include "control/config/toml_reader.h"
#include "roce/frame.h"

namespace roci::control {
namespace {

constexpr uint32_t kMostUs = 1'000'000;
constexpr uint32_t kMostMbps = 100'000;
constexpr uint32_t kMostBytes = 1 << 30;
constexpr uint32_t kMostBurstBytes = 1 << 20;
// A smaller value is useless: DCQCN's rate increase makes at most one step per packet.
constexpr auto kLeastBytes = static_cast<uint32_t>(roce::kMaxFrameBytes);

// Reads microseconds or Mbit/s into `out`, in nanoseconds or kbit/s.
void Thousands(TomlReader& reader, const char* key, uint32_t min, uint32_t max, uint32_t& out) {
  uint32_t value = 0;
  if (reader.Number(key, min, max, value)) out = value * 1000;
}

}  // namespace

bool ReadCongestionUse(TomlReader& reader, const char* key, CongestionUse& out) {
  return reader.Parsed(key, "one of \"auto\", \"on\", \"off\"", [&](const std::string& text) {
    constexpr const char* kNames[] = {"auto", "on", "off"};
    const auto* found = std::find(std::begin(kNames), std::end(kNames), text);
    if (found == std::end(kNames)) return false;
    out = static_cast<CongestionUse>(found - std::begin(kNames));
    return true;
  });
}

void ReadCongestion(TomlReader& reader, CongestionConfig& out) {
  roce::CongestionParameters& p = out.parameters;
  ReadCongestionUse(reader, "enabled", out.use);
  Thousands(reader, "cnp_interval_us", 1, kMostUs, p.cnp_interval_ns);
  Thousands(reader, "cnp_port_interval_us", 0, kMostUs, p.cnp_port_interval_ns);
  uint32_t dscp = p.cnp_dscp;
  reader.Number("cnp_dscp", 0, 63, dscp);
  p.cnp_dscp = static_cast<uint8_t>(dscp);
  uint32_t priority = p.cnp_priority;
  reader.Number("cnp_priority", 0, 7, priority);
  p.cnp_priority = static_cast<uint8_t>(priority);
  Thousands(reader, "min_rate_mbps", 1, kMostMbps, p.min_rate_kbps);
  Thousands(reader, "cut_interval_us", 0, kMostUs, p.cut_interval_ns);
  reader.Number("alpha_divisor", 2, 4096, p.alpha_divisor);
  Thousands(reader, "alpha_period_us", 1, kMostUs, p.alpha_period_ns);
  Thousands(reader, "increase_period_us", 1, kMostUs, p.increase_period_ns);
  reader.Number("increase_bytes", kLeastBytes, kMostBytes, p.increase_bytes);
  reader.Number("fast_recovery_steps", 1, 100, p.fast_recovery_steps);
  Thousands(reader, "additive_mbps", 1, kMostMbps, p.additive_kbps);
  Thousands(reader, "hyper_mbps", 1, kMostMbps, p.hyper_kbps);
  reader.Number("burst_bytes", 1, kMostBurstBytes, p.burst_bytes);
}

std::optional<roce::CongestionParameters> CongestionOf(const CongestionConfig& config,
                                                       std::optional<CongestionUse> own,
                                                       bool on_wire, uint32_t rate_mbps) {
  const CongestionUse use = own.value_or(config.use);
  if (use == CongestionUse::kOff || (use == CongestionUse::kAuto && on_wire)) return std::nullopt;
  roce::CongestionParameters parameters = config.parameters;
  parameters.line_rate_kbps = rate_mbps * 1000;
  return parameters;
}

}  // namespace roci::control
