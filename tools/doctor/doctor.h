// All findings of `roci doctor`, in the order in which they are printed.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace roci::tools {

// `runtime_dir`: --runtime-dir, empty: not given. `version`: of this program. Takes some seconds at
// most. The calling process must have one thread.
std::vector<Finding> Examine(const std::string& runtime_dir, const std::string& version);

}  // namespace roci::tools
