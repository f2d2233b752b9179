// The management command "device": takes devices out (hot unplug) and plugs them in again.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "control/cm/server.h"
#include "control/device/services.h"
#include "control/session/session_server.h"
#include "control/sysfs/sysfs_publisher.h"

namespace roci::control {

// Who must know that a device comes or goes. Plain references: the daemon outlives it.
struct PlugParts {
  const Services& services;
  SessionServer& sessions;
  cm::Server& connections;
  SysfsPublisher& publisher;
};

// {"device": NAME, "state": "unplugged"|"plugged"}. Unplugged: for programs that have it open the
// device is dead (IBV_EVENT_DEVICE_FATAL), identifiers of librdmacm on it get
// RDMA_CM_EVENT_DEVICE_REMOVAL, and it is listed nowhere but in `roci show`. Returns {"device",
// "state", "programs": how many contexts ended}. FailedPrecondition: it is so already. Control
// thread only.
absl::StatusOr<nlohmann::json> RunPlugCommand(const PlugParts& parts,
                                              const nlohmann::json& request);

}  // namespace roci::control
