// Runs one scenario: its daemon, its programs and its timeline, and judges what it expects.
#pragma once

#include <optional>
#include <string>

#include "tools/scenario/outcome.h"
#include "tools/scenario/scenario.h"

namespace roci::tools {

struct RunnerSettings {
  std::string roci;  // paths of the programs
  std::string rocid;
  std::string plugin;     // as of `roci run --plugin`; empty: not given
  std::string directory;  // of this run: empty; removed at the end
  std::string keep;       // folder for what remains of a failed run; empty: nothing is kept
};

// Takes over the calling process, which has one thread and no children (ProcessSet). Nothing: a
// signal has interrupted it. In all cases nothing is left of the run but what `keep` asks for.
std::optional<Outcome> RunScenario(const Scenario& scenario, const RunnerSettings& settings);

}  // namespace roci::tools
