// Decodes, checks and describes faults of completions (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "dataplane/types/completion_fault_settings.h"

namespace roci::control {

// Whether it is a fault of completions: it has the key "completion".
bool IsCompletionFault(const nlohmann::json& fault);

// "completion": the name of an opcode of enum ibv_wc_opcode without IBV_WC_ ("rdma_read"), or a
// pattern ("*"); "qps": of these queue pairs; fault_occasions.h. "status": a name of enum
// ibv_wc_status without IBV_WC_ ("rem_access_err").
absl::StatusOr<dataplane::CompletionFaultSettings> DecodeCompletionFault(
    const nlohmann::json& fault);

nlohmann::json DescribeCompletionFault(const dataplane::CompletionFaultState& fault);

}  // namespace roci::control
