// Asks the daemon something over its management socket.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace roci::tools {

// Sends {"command": ..., ...} and returns the answer's "result". `runtime_dir` as given with
// --runtime-dir, empty if not. NotFound: no daemon is there; PermissionDenied: it is another
// user's; Internal: what the daemon refused, in its words.
absl::StatusOr<nlohmann::json> AskDaemon(const std::string& runtime_dir,
                                         const nlohmann::json& request);

}  // namespace roci::tools
