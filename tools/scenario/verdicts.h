// Compares the expectations of a scenario with its outcome.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/scenario/outcome.h"
#include "tools/scenario/scenario.h"
#include "tools/scenario/surroundings.h"
#include "tools/scenario/timeline.h"

namespace roci::tools {

// The exit statuses, times and outputs of the programs. Pure.
void CheckPrograms(const Scenario& scenario, const std::vector<ProgramRun>& runs,
                   std::vector<Verdict>& out);

// Faults' hits and the list `expect`. Asks the daemon again, for at most 3 s, until all holds: it
// may still be tidying up after the last program.
void CheckRest(const Scenario& scenario, const Timeline& timeline, Surroundings& surroundings,
               ProcessSet& processes, std::vector<Verdict>& out);

}  // namespace roci::tools
