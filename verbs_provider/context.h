// An open device of this process.
#pragma once

#include "verbs_provider/intercept.h"
#include "verbs_provider/provider_api.h"

namespace roci::provider {

/// verbs_device_ops::alloc_context: takes `cmd_fd` over; null with errno where the daemon is not
/// there, is of another version or does not have the device.
verbs_context* AllocContext(ibv_device* device, int cmd_fd, void* private_data);

/// What interception asks of us.
InterceptHandlers ContextHandlers();

}  // namespace roci::provider
