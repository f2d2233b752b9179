// Decodes, checks and describes faults of verbs calls (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "control/device/call_faults.h"

namespace roci::control {

// Whether it is a fault of calls: it has the key "verb".
bool IsCallFault(const nlohmann::json& fault);

// "verb": a name as in libibverbs without "ibv_" ("reg_mr") or as in librdmacm ("rdma_connect"), or
// a pattern ("create_*"); fault_program.h and fault_occasions.h. What it does: "errno": a name
// ("ENOMEM") or a number; "delay_ns" (before the call is executed; not librdmacm's calls); "limit":
// ["max_qp=16", ...] (of the answer to query_device or query_port); several of them.
absl::StatusOr<CallFaultSettings> DecodeCallFault(const nlohmann::json& fault);

nlohmann::json DescribeCallFault(const CallFault& fault);

}  // namespace roci::control
