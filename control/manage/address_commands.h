// The management command that adds and removes addresses of devices while programs use them.
#pragma once

#include "control/device/services.h"
#include "control/manage/manage_server.h"
#include "control/sysfs/sysfs_publisher.h"

namespace roci::control {

// {"command": "address", "action": "add" | "remove", "device": NAME, "address": "10.0.0.1/24"}
// answers {"index": N}, the address' place in the GID table (with "add" only). A prefix length is
// not needed for "remove". Everything referred to outlives `server`.
void AddAddressCommand(ManageServer& server, Services& services, SysfsPublisher& publisher);

}  // namespace roci::control
