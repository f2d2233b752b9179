// Where the libibverbs provider is.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace roci::tools {

// The absolute path of libroci-rdmavN.so: `given` if not empty, else in the build tree or below the
// prefix that holds this program, else where it is installed. It must be readable by the caller.
absl::StatusOr<std::string> FindPlugin(const std::string& given);

}  // namespace roci::tools
