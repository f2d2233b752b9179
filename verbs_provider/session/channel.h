// Completion channels: descriptors that libibverbs made us create, and the daemon's handles for
// them.
#pragma once

#include <cstdint>

namespace roci::provider {

struct Session;

inline constexpr uint32_t kNoChannel = ~uint32_t{0};

/// ibv_create_comp_channel, as InterceptHandlers wants it: a new descriptor, registered, or a
/// negative errno.
int CreateChannel(Session* session);

/// ibv_destroy_comp_channel does nothing but close the descriptor. `owner` is what it was
/// registered for.
void DestroyChannel(void* owner);

/// The daemon's handle of the channel whose descriptor is `fd`. False: `fd` is no channel of
/// `session`.
bool FindChannel(Session* session, int fd, uint32_t* handle);

/// Forgets every channel of a session that ends. Their descriptors are libibverbs' to close.
void DropChannels(Session* session);

}  // namespace roci::provider
