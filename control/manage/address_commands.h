// The management command that adds and removes addresses of devices at run time.
#pragma once

#include "control/device/services.h"
#include "control/manage/manage_server.h"
#include "control/sysfs/sysfs_publisher.h"

namespace roci::control {

// {"command": "address", "action": "add" | "remove", "device": NAME, "address": "10.0.0.1/24"}
// returns {"index": N}, the address's index in the GID table ("add" only). "remove" needs no prefix
// length. All arguments outlive `server`.
void AddAddressCommand(ManageServer& server, Services& services, SysfsPublisher& publisher);

}  // namespace roci::control
