// Decodes, checks and describes faults of verbs calls (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "control/device/call_faults.h"

namespace roci::control {

// Whether it is a fault of calls: it has the key "verb".
bool IsCallFault(const nlohmann::json& fault);

// "verb": a name as in libibverbs without "ibv_" ("reg_mr"), or a pattern ("create_*"); "program":
// of programs with this name only; fault_occasions.h. What it does: "errno": a name ("ENOMEM") or a
// number, "delay_ns" (before the call is executed), or both.
absl::StatusOr<CallFaultSettings> DecodeCallFault(const nlohmann::json& fault);

nlohmann::json DescribeCallFault(const CallFault& fault);

}  // namespace roci::control
