// The values of all metrics at one moment.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "control/cm/server.h"
#include "control/device/services.h"
#include "control/session/session_server.h"

namespace roci::control {

// Arrays of objects, as metric_families.h names them. `start_time_s`: of the daemon, since the
// epoch. Its size is bounded: programs of one name and user are one item, and beyond some hundred
// items the rest is one item. Control thread.
nlohmann::json SnapshotMetrics(const Services& services, const SessionServer& sessions,
                               const cm::Server& connections, double start_time_s);

}  // namespace roci::control
