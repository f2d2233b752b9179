// Opens and imports contexts of a device.
#pragma once

#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/intercept/intercept.h"

namespace roci::provider {

struct VerbsDevice;

/// verbs_device_ops::alloc_context: takes ownership of `cmd_fd`. Null with errno if the daemon does
/// not run, has another version or does not have the device.
verbs_context* AllocContext(ibv_device* device, int cmd_fd, void* private_data);

/// verbs_device_ops::import_context: `cmd_fd` is a duplicate of a context's command descriptor. If
/// this process has that context, the result is another context of the same session, and the
/// context that reads first gets an asynchronous event. If another process has it, the result has a
/// session of its own that shares the context. ENODEV if no process has it.
verbs_context* ImportContext(ibv_device* device, int cmd_fd);

/// Add and remove a device that libibverbs has allocated or frees.
void AddDevice(VerbsDevice* device);
void RemoveDevice(VerbsDevice* device);

/// The handlers for contexts' command, event and channel descriptors.
InterceptHandlers ContextHandlers();

}  // namespace roci::provider
