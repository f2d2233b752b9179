// The parameters of congestion control as a list, for comparisons.
#pragma once

#include <cstdint>
#include <vector>

#include "roce/dcqcn.h"

namespace roci::control {

inline std::vector<uint32_t> FieldsOf(const roce::CongestionParameters& p) {
  return {p.line_rate_kbps,  p.min_rate_kbps,      p.cnp_interval_ns, p.cnp_port_interval_ns,
          p.cnp_dscp,        p.cnp_priority,       p.cut_interval_ns, p.alpha_divisor,
          p.alpha_period_ns, p.increase_period_ns, p.increase_bytes,  p.fast_recovery_steps,
          p.additive_kbps,   p.hyper_kbps,         p.burst_bytes};
}

}  // namespace roci::control
