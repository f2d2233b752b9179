// Creates, checks and locks the daemon's runtime directory; limits of the process; sd_notify.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Creates `directory` (mode 0755) if it does not exist, and locks <directory>/rocid.lock until the
// descriptor is closed. AlreadyExists: another daemon has the lock (the message has its process
// ID). PermissionDenied: the directory belongs to another user or is writable by all.
absl::StatusOr<UniqueFd> LockRuntimeDir(const std::string& directory);

// The directory's absolute path, without links.
absl::StatusOr<std::string> CanonicalDir(const std::string& directory);

// Raises the limit of open files to its hard limit: rings and pipes take descriptors while they are
// passed to programs.
void RaiseFileLimit();
// Most open descriptors of this process (RLIMIT_NOFILE).
uint64_t FileLimit();

// Most mappings (lines of /proc/self/maps) of this process: vm.max_map_count.
uint64_t MappingLimit();

// Bytes of memory that this process's cgroup (version 2) and those above it permit; UINT64_MAX: no
// limit. `root`: where the cgroups are mounted.
uint64_t CgroupMemoryLimit(const std::string& root = "/sys/fs/cgroup",
                           const std::string& own = "/proc/self/cgroup");

// Sends `state` to the service manager at $NOTIFY_SOCKET, if any: sd_notify(3).
void NotifyServiceManager(const char* state);

}  // namespace roci::control
