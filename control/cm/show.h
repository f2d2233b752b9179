// The state of the connection manager as JSON for `roci show`.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "control/cm/server.h"

namespace roci::control::cm {

// An array of objects, one for each identifier of a program.
nlohmann::json ShowConnections(const Server& server);
// The number of identifiers in each state that some are in.
std::map<std::string, uint64_t> CountStates(const Server& server);
// Adds the connection manager's counters to each of `ports`: all ports of the daemon, in order.
void AddCounters(const Server& server, bool with_zeros, nlohmann::json& ports);

}  // namespace roci::control::cm
