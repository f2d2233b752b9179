// Converts statuses and access flags between memory/ and the session protocol.
#pragma once

#include "absl/status/status.h"
#include "memory/types.h"

namespace roci::control {

// ErrnoOf() of the result is the errno of the manual pages: ENOMEM for a full table, EBUSY, ENOENT,
// EFAULT, else EINVAL.
absl::Status StatusOfMemory(memory::MemoryStatus status);

// The access flags of the key table for those of a program.
memory::Access AccessOf(uint32_t flags);

}  // namespace roci::control
