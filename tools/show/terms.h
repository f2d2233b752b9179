// Explanations of the columns of `roci show`.
#pragma once

#include <string>

namespace roci::tools {

// The explanation for one kind ("qps"); empty: none.
std::string ExplainColumns(const std::string& what);

}  // namespace roci::tools
