// Completion channels: the descriptors that libibverbs gets for them, and the daemon's handles.
#pragma once

#include <cstdint>

namespace roci::provider {

struct VerbsSession;

/// ibv_create_comp_channel (InterceptHandlers::create_completion_channel): a new registered
/// descriptor, or a negative errno.
int CreateChannel(VerbsSession* session);

/// Called when ibv_destroy_comp_channel closes the descriptor, which is all it does. `owner`: as
/// registered.
void DestroyChannel(void* owner);

/// Sets `*handle` to the daemon's handle of the channel with descriptor `fd`. False if `fd` is not
/// a channel of `session`.
bool FindChannel(VerbsSession* session, int fd, uint32_t* handle);

/// Frees the channels of a session that ends. libibverbs closes their descriptors.
void DropChannels(VerbsSession* session);

}  // namespace roci::provider
