// Reads scenarios (docs/scenarios.md) from TOML.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/scenario/scenario.h"

namespace roci::tools {

// InvalidArgument: one line, "FILE:LINE: KEY: REASON". Pure.
absl::StatusOr<Scenario> ParseScenario(std::string_view text, const std::string& file);
// As ParseScenario; NotFound: the file cannot be read.
absl::StatusOr<Scenario> LoadScenario(const std::string& file);

}  // namespace roci::tools
