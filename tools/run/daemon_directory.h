// Finds the runtime directory of a running daemon.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace roci::tools {

// The absolute path, without symbolic links, of the directory that `given` (--runtime-dir; may be
// empty), the environment or the default names (abi::RuntimeDir). Unavailable: no daemon serves
// there.
absl::StatusOr<std::string> DirectoryOfDaemon(const std::string& given);

// As DirectoryOfDaemon, but waits up to `limit_s` seconds until a daemon serves there and has made
// its device tree.
absl::StatusOr<std::string> AwaitDaemon(const std::string& given, double limit_s);

}  // namespace roci::tools
