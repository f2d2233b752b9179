// The placeholders of a scenario's texts: {port}, {port2} to {port9}, {dir}, and values of the
// daemon: {qps roci0 /0/qpn}.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace roci::tools {

inline constexpr int kMostPorts = 9;

// 1 for "port", 2 for "port2", ...; 0: none.
int PortNumber(const std::string& placeholder);

// InvalidArgument: `text` has a placeholder that does not exist.
absl::Status CheckPlaceholders(const std::string& text);

}  // namespace roci::tools
