// A private mount namespace, and what is done in it: directories shown again with more in them.
//
// Everything here changes the calling process, which must have one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::tools {

// Gives this process a mount namespace of its own, from which nothing propagates back. Where that
// takes a privilege it does not have, it gets a user namespace too, with its own user and group
// alone mapped, each to itself: the privileges in it end with the next exec, unless the user is
// root, who keeps what was in the bounding set before. PermissionDenied or Unimplemented where both
// are refused.
absl::Status EnterPrivateMountNamespace();

// Covers `directory` with a tmpfs that shows all that was there: directories and files as bind
// mounts (with what is mounted below), symbolic links as copies. `keep` may leave names out. Undone
// again where it fails half-way. An entry that cannot be shown is left out.
absl::Status MirrorDirectory(const std::string& directory,
                             const std::function<bool(const std::string& name)>& keep);

// Makes `parent`/NAME a directory for each name, mirroring `parent` if one of them is missing.
absl::Status EnsureDirectories(const std::string& parent, const std::vector<std::string>& names);

// Shows `source` at `target` too; both directories, or both not.
absl::Status BindMount(const std::string& source, const std::string& target);

}  // namespace roci::tools
