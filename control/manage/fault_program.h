// The program and queue pair that a fault concerns, in management requests (JSON): "program" (its
// name), "pid", "created" (the n-th queue pair that is created from now on).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "dataplane/types/program_match.h"
#include "dataplane/types/queue_pair_match.h"

namespace roci::control {

absl::Status TakeProgram(const nlohmann::json& request, dataplane::ProgramMatch& out);
void DescribeProgram(const dataplane::ProgramMatch& program, nlohmann::json& out);

absl::Status TakeQueuePairMatch(const nlohmann::json& request, dataplane::QueuePairMatch& out);
void DescribeQueuePairMatch(const dataplane::QueuePairMatch& match, nlohmann::json& out);

}  // namespace roci::control
