// Prints a command's answer from the daemon.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roci::tools {

// Both return the exit status of the command.

// Prints why a request failed.
int PrintFailure(const absl::Status& status);
// Prints the answer as JSON if `json`, else as the text of `format`; without an answer, why.
int PrintAnswer(const absl::StatusOr<nlohmann::json>& answer, bool json,
                absl::FunctionRef<std::string(const nlohmann::json&)> format);

}  // namespace roci::tools
