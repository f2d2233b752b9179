// Maps subordinate user IDs to the account that owns them.
#pragma once

#include <sys/types.h>

namespace roci::control {

// Returns the account that owns `uid` by subuid(5), the lowest user ID if several do, and `uid`
// itself if none does. Reads /etc/subuid or queries NSS: may block. Thread-safe.
uid_t AccountOf(uid_t uid);

}  // namespace roci::control
