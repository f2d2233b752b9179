// Ethernet flow control of a port: pause frames (IEEE 802.3, annex 31B) and priority flow control
// (PFC, IEEE 802.1Qbb).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "dataplane/types/port_state.h"

namespace roci::dataplane {

// Switches on what `settings` ask for and returns what is on. Control thread, after the port has
// started. FailedPrecondition: the port does not offer what is required.
absl::StatusOr<PortFlowControl> SetFlowControl(uint16_t port, const PortSettings& settings);
// For a port that has none: an error if the settings require it.
absl::Status FlowControlIsOff(const PortSettings& settings);

}  // namespace roci::dataplane
