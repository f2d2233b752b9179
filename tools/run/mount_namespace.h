// Creates a private mount namespace, and mirrors directories in it so that entries can be added.
//
// All functions change the calling process, which must have one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::tools {

// Moves this process into a new mount namespace, from which no mount propagates back. Without the
// privilege for it, also into a new user namespace in which only its own user and group are mapped,
// each to itself. The capabilities there end with the next exec, except for root, which keeps those
// of its bounding set. PermissionDenied or Unimplemented if both are refused.
absl::Status EnterPrivateMountNamespace();

// Covers `directory` with a tmpfs that mirrors its entries: directories and files as bind mounts
// (with all mounts below), symbolic links as copies. Entries for which `keep` is false, and entries
// that cannot be mirrored, are left out. On failure the directory is as before.
absl::Status MirrorDirectory(const std::string& directory,
                             const std::function<bool(const std::string& name)>& keep);

// Creates the directory `parent`/NAME for each name; mirrors `parent` first if one is missing.
absl::Status EnsureDirectories(const std::string& parent, const std::vector<std::string>& names);

// Mounts `source` at `target`; both must be directories, or neither.
absl::Status BindMount(const std::string& source, const std::string& target);

}  // namespace roci::tools
