// An open device of this process.
#pragma once

#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/intercept/intercept.h"

namespace roci::provider {

struct Device;

/// verbs_device_ops::alloc_context: takes `cmd_fd` over; null with errno where the daemon is not
/// there, is of another version or does not have the device.
verbs_context* AllocContext(ibv_device* device, int cmd_fd, void* private_data);

/// verbs_device_ops::import_context: another context of the session whose command descriptor
/// `cmd_fd` is a duplicate of. Asynchronous events go to whichever of the contexts reads first.
/// Where another process has it, a context with a session of its own that shares that one's; ENODEV
/// where nobody has.
verbs_context* ImportContext(ibv_device* device, int cmd_fd);

/// libibverbs has made a device, or gives one up.
void AddDevice(Device* device);
void RemoveDevice(Device* device);

/// What interception asks of us.
InterceptHandlers ContextHandlers();

}  // namespace roci::provider
