// Statuses of memory/ as answers to programs.
#pragma once

#include "absl/status/status.h"
#include "memory/types.h"

namespace roci::control {

// What ErrnoOf turns into the errno of the manual pages: ENOMEM for a full table, EBUSY, ENOENT,
// EFAULT, else EINVAL.
absl::Status StatusOfMemory(memory::MemoryStatus status);

// What the key table knows of the access flags that a program gave.
memory::Access AccessOf(uint32_t flags);

}  // namespace roci::control
