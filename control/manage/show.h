// What the daemon tells about itself, as JSON for `roci show` and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/session/session_server.h"

namespace roci::control {

// `what`: devices, ports, apps, qps, cqs, mrs, counters, lcores or neighbours. Always an array of
// objects. InvalidArgument for anything else. Control thread.
absl::StatusOr<nlohmann::json> Show(const Services& services, const SessionServer& server,
                                    const std::string& what);

}  // namespace roci::control
