// The management command "event": raises an asynchronous event of verbs in programs, with the state
// that it stands for.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "control/manage/link_states.h"
#include "control/session/session_server.h"

namespace roci::control {

// {"device": NAME, "event": "qp_fatal"} (a name of enum ibv_event_type without IBV_EVENT_); for
// events of objects "qp" or "wq" (its number), "cq" or "srq" (a handle, as `roci show` has it), and
// "pid" if several programs have such an object. Returns {"device", "event", "programs": how many
// contexts get it}. FailedPrecondition: nothing would change.
absl::StatusOr<nlohmann::json> RunEventCommand(const Services& services, SessionServer& sessions,
                                               LinkStates& links, const nlohmann::json& request,
                                               roce::TimeNs now);

}  // namespace roci::control
