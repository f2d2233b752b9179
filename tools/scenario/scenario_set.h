// Runs several scenarios side by side, each in a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/scenario/outcome.h"
#include "tools/scenario/runner.h"
#include "tools/scenario/scenario.h"

namespace roci::tools {

struct SetSettings {
  RunnerSettings runner;  // without `directory`; `keep`: the folder of all
  uint32_t jobs = 1;
  uint32_t repeat = 1;
};

// Calls `report` with each outcome as it comes. Returns the number of runs that a signal (SIGINT,
// SIGTERM, SIGHUP) kept from ending. The calling process has one thread; these signals stay
// blocked.
absl::StatusOr<uint64_t> RunScenarios(const std::vector<Scenario>& scenarios,
                                      const SetSettings& settings,
                                      const std::function<void(const Outcome&)>& report);

}  // namespace roci::tools
