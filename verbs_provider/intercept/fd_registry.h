// The descriptors of this process that the plugin has registered. Lock-free, without a limit on
// their number.
#pragma once

#include <cstdint>

#include "verbs_provider/intercept/intercept.h"

namespace roci::provider {

// RegisterFd, ForgetFd and LookUpFd (intercept.h) call these.
bool AddFd(int fd, FdKind kind, void* owner);
void RemoveFd(int fd);
FdKind FindFd(int fd, void** owner);

// True if `fd` is still the file that was registered. If it is not, removes it.
bool IsSameFile(int fd);

// Atomically changes the kind of `fd` from `from` to `to`. False if its kind is not `from`.
bool ExchangeKind(int fd, FdKind from, FdKind to);

}  // namespace roci::provider
