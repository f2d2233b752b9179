// The registered memory of sessions as JSON, for `roci show mrs` and `roci show apps`.
#pragma once

#include <nlohmann/json.hpp>

#include "control/session/session.h"

namespace roci::control {

// Appends the session's regions, windows and lists to `out`. Each is an object with the members of
// `head`. Control thread.
void AddMrs(const Session& session, const nlohmann::json& head, nlohmann::json& out);

// How the session's regions are accessed, as of their registration; null if it has none.
nlohmann::json ShowMemoryOf(const Session& session);

}  // namespace roci::control
