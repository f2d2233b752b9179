// Which descriptors of this process are ours, found without a lock and without a bound on the
// number.
#pragma once

#include <cstdint>

#include "verbs_provider/intercept/intercept.h"

namespace roci::provider {

// As RegisterFd, ForgetFd and LookUpFd (intercept.h), which are these.
bool AddFd(int fd, FdKind kind, void* owner);
void RemoveFd(int fd);
FdKind FindFd(int fd, void** owner);

// True if `fd` still is the file that was registered. If not, it is forgotten.
bool IsSameFile(int fd);

// Changes what `fd` is, if it is `from`. Exactly one of several threads that try gets true.
bool ExchangeKind(int fd, FdKind from, FdKind to);

}  // namespace roci::provider
