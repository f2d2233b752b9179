// Finds the libibverbs provider.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roci::tools {

// The absolute path of libroci-rdmavN.so: `given` if not empty, else in this program's build tree
// or installation prefix, else in the configured library directory. It must be readable by the
// caller.
absl::StatusOr<std::string> FindPlugin(const std::string& given);

// The plugins of all generations of libibverbs: that of FindPlugin, and those beside it.
absl::StatusOr<std::vector<std::string>> FindPlugins(const std::string& given);

}  // namespace roci::tools
