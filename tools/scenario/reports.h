// Outcomes as text, TAP, JUnit and JSON. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/scenario/outcome.h"

namespace roci::tools {

// A line for each expectation. `repeat`: the number of runs of each scenario; with several, lines
// of what failed only.
std::string TextOf(const Outcome& outcome, uint32_t repeat);
// How many scenarios, runs and expectations there were and failed. Names what failed in some runs
// only (flaky) or in all. `interrupted`: runs that did not end.
std::string SummaryOf(const std::vector<Outcome>& outcomes, uint32_t repeat, uint64_t interrupted,
                      double seconds);

// The Test Anything Protocol, version 13: a line for each expectation. `first`: the number of the
// first line.
std::string TapOf(const Outcome& outcome, uint32_t repeat, uint64_t first);
// Its last lines.
std::string TapEnd(uint64_t lines, uint64_t interrupted);

// A test suite for each run, a test case for each expectation.
std::string JunitOf(const std::vector<Outcome>& outcomes, uint32_t repeat);

nlohmann::json JsonOf(const std::vector<Outcome>& outcomes, uint64_t interrupted, double seconds);

}  // namespace roci::tools
