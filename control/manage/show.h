// The state of the daemon as JSON, for `roci show` and for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/session/session_server.h"

namespace roci::control {

// Returns an array of objects. `what`: devices, ports, counters, neighbours, apps, qps, cqs, srqs,
// mrs or lcores; InvalidArgument for anything else. Control thread.
absl::StatusOr<nlohmann::json> Show(const Services& services, const SessionServer& server,
                                    const std::string& what);

}  // namespace roci::control
