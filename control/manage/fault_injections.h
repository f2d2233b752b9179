// Decodes and describes the frames that faults of packets inject (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "dataplane/types/fault_settings.h"

namespace roci::control {

// "inject": "cnp", "nak_access", ...; "reject": a reason, as number or name; "frame": the bytes of
// a frame in hexadecimal digits. At most one of them. "reject" also sets `drops`. `cm_message`:
// that of the match, or 0.
absl::Status TakeInjection(const nlohmann::json& request, uint16_t cm_message,
                           dataplane::FaultActions& out);
void DescribeInjection(const dataplane::FaultActions& actions, nlohmann::json& out);

}  // namespace roci::control
