// What the daemon tells of the connection manager, as JSON for `roci show connections`.
#pragma once

#include <nlohmann/json.hpp>

#include "control/cm/server.h"

namespace roci::control::cm {

// An array of objects, one for each identifier of a program.
nlohmann::json ShowConnections(const Server& server);

}  // namespace roci::control::cm
