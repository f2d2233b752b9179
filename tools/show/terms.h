// What the columns of `roci show` mean.
#pragma once

#include <string>

namespace roci::tools {

// Of one kind ("qps"), for people; empty if there is nothing to explain.
std::string ExplainColumns(const std::string& what);

}  // namespace roci::tools
