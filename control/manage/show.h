// The state of the daemon as JSON, for `roci show` and for other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "control/cm/server.h"
#include "control/device/services.h"
#include "control/manage/manage_server.h"
#include "control/session/session_server.h"

namespace roci::control {

// Answers kShowCommand with an array of objects of the kind "what" (manage_protocol.h), except
// those of ShowInParts. InvalidArgument: "what" is missing or unknown. Control thread.
absl::StatusOr<nlohmann::json> Show(const Services& services, const SessionServer& sessions,
                                    const cm::Server& connections, const nlohmann::json& request);

// For the kinds of which programs may have very many. Absent: another kind.
std::optional<ManageServer::Parts> ShowInParts(const SessionServer& sessions,
                                               const nlohmann::json& request);

}  // namespace roci::control
