// The management command that adds and removes routes of devices while programs use them.
#pragma once

#include "control/device/services.h"
#include "control/manage/manage_server.h"

namespace roci::control {

// {"command": "route", "action": "add" | "remove", "device": NAME, "network": "10.1.0.0/16",
// "gateway": "10.99.0.9", "vlan": 7} answers {}. Without a VLAN: in none. A gateway is not needed
// for "remove". `services` outlives `server`.
void AddRouteCommand(ManageServer& server, Services& services);

}  // namespace roci::control
