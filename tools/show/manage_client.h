// Requests to the daemon over its management socket.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"
#include "control/manage/manage_protocol.h"

namespace roci::tools {

// A request for all items of a kind.
nlohmann::json ShowRequest(control::ShowKind kind);

// Sends {"command": ..., ...} and returns the answer's "result". `runtime_dir`: --runtime-dir,
// empty: not given. NotFound: no daemon; PermissionDenied: the daemon of another user;
// DeadlineExceeded: no answer; Internal: refused, with the daemon's message.
absl::StatusOr<nlohmann::json> AskDaemon(const std::string& runtime_dir,
                                         const nlohmann::json& request, int timeout_s = 10);

// Sends a request whose answer is a stream. Returns the connection after the daemon has accepted
// the request; all further bytes are the stream, without a time limit. Errors as above.
absl::StatusOr<control::UniqueFd> OpenStream(const std::string& runtime_dir,
                                             const nlohmann::json& request, int timeout_s = 10);

}  // namespace roci::tools
