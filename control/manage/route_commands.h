// The management command that adds and removes routes of devices at run time.
#pragma once

#include "control/device/services.h"
#include "control/manage/manage_server.h"

namespace roci::control {

// {"command": "route", "action": "add" | "remove", "device": NAME, "network": "10.1.0.0/16",
// "gateway": "10.99.0.9", "vlan": 7} returns {}. "vlan" is optional. "remove" needs no gateway.
// `services` outlives `server`.
void AddRouteCommand(ManageServer& server, Services& services);

}  // namespace roci::control
