// What the daemon tells of the connection manager, as JSON for `roci show`.
#pragma once

#include <nlohmann/json.hpp>

#include "control/cm/server.h"

namespace roci::control::cm {

// An array of objects, one for each identifier of a program.
nlohmann::json ShowConnections(const Server& server);
// Gives each of `ports`, which are all of the daemon's in their order, what it has counted.
void AddCounters(const Server& server, bool with_zeros, nlohmann::json& ports);

}  // namespace roci::control::cm
