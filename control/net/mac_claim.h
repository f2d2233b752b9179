// Detects that two daemons or devices use the same MAC on one network device: each would handle the
// other's frames as its own and reject the other's connection requests.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"
#include "roce/types.h"

namespace roci::control {

// Claims `mac` on `interface` in the caller's network namespace until the descriptor is closed. The
// claim is an abstract socket (unix(7)), which the kernel removes with the process. AlreadyExists:
// another daemon or device has claimed it. Other errors: those of socket(2) and bind(2).
absl::StatusOr<UniqueFd> ClaimMac(const std::string& interface, const roce::Mac& mac);

}  // namespace roci::control
