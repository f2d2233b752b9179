// The daemon's runtime directory: made, checked, and held by one daemon at a time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Makes `directory` (mode 0755) if it is not there, and takes <directory>/rocid.lock. The lock
// lasts as long as the descriptor. AlreadyExists, naming the other daemon's process, if it is
// taken; PermissionDenied if the directory is another user's or open to all.
absl::StatusOr<UniqueFd> LockRuntimeDir(const std::string& directory);

// The directory's absolute path, without links.
absl::StatusOr<std::string> CanonicalDir(const std::string& directory);

// Allows as many open files as the system does: rings and pipes take descriptors while they are
// passed on.
void RaiseFileLimit();
// How many descriptors this process may have open.
uint64_t FileLimit();

// How many mappings (lines of /proc/self/maps) this process may have: vm.max_map_count.
uint64_t MappingLimit();

// Tells systemd (or whoever listens at $NOTIFY_SOCKET) how the daemon does: sd_notify(3).
void NotifyServiceManager(const char* state);

}  // namespace roci::control
