// Decodes, checks and describes faults of completions (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "dataplane/types/completion_fault_settings.h"

namespace roci::control {

// Whether it is a fault of completions: it has the key "completion".
bool IsCompletionFault(const nlohmann::json& fault);

// "completion": the name of an opcode of enum ibv_wc_opcode without IBV_WC_ ("rdma_read"), or a
// pattern ("*"); "qps": of these queue pairs; fault_program.h and fault_occasions.h. What it does:
// "status": a name of enum ibv_wc_status without IBV_WC_ ("rem_access_err"), and with it
// "vendor_error"; "delay_ns"; "lose_event": true; "overflow": true.
absl::StatusOr<dataplane::CompletionFaultSettings> DecodeCompletionFault(
    const nlohmann::json& fault);

nlohmann::json DescribeCompletionFault(const dataplane::CompletionFaultState& fault);

}  // namespace roci::control
