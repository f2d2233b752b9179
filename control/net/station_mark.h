// Tells daemons of each other that drive the same network device under the same MAC: each would
// take the other's frames for its own, and reject connections that the other is asked for.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"
#include "roce/types.h"

namespace roci::control {

// The caller is the station `mac` on `interface` of its network namespace, as long as the
// descriptor is open (an abstract socket, unix(7), which the kernel removes with its process).
// AlreadyExists: another daemon or device is. Other errors as of socket(2) and bind(2).
absl::StatusOr<UniqueFd> MarkStation(const std::string& interface, const roce::Mac& mac);

}  // namespace roci::control
