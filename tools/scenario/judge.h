// Compares what a scenario expects with what has happened.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/scenario/outcome.h"
#include "tools/scenario/scenario.h"
#include "tools/scenario/surroundings.h"
#include "tools/scenario/timeline.h"

namespace roci::tools {

// The ends of the programs, their times and what they have printed. Pure.
void JudgePrograms(const Scenario& scenario, const std::vector<ProgramRun>& runs,
                   std::vector<Verdict>& out);

// Faults' hits and the list `expect`. Asks the daemon again, for at most 3 s, until all holds: it
// may still be tidying up after the last program.
void JudgeRest(const Scenario& scenario, const Timeline& timeline, Surroundings& surroundings,
               ProcessSet& processes, std::vector<Verdict>& out);

}  // namespace roci::tools
