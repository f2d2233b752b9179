// Asks the daemon something over its management socket.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::tools {

// Sends {"command": ..., ...} and returns the answer's "result". `runtime_dir` as given with
// --runtime-dir, empty if not. NotFound: no daemon is there; PermissionDenied: it is another
// user's; DeadlineExceeded: it does not answer; Internal: what the daemon refused, in its words.
absl::StatusOr<nlohmann::json> AskDaemon(const std::string& runtime_dir,
                                         const nlohmann::json& request, int timeout_s = 10);

// Sends a request whose answer is a stream, and returns the connection once the daemon has agreed:
// what comes from it is the stream, and there is no time limit on it any more. Errors as above.
absl::StatusOr<control::UniqueFd> OpenStream(const std::string& runtime_dir,
                                             const nlohmann::json& request, int timeout_s = 10);

}  // namespace roci::tools
