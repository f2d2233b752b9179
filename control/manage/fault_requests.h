// The management command "fault": adds, removes and lists faults; decodes and checks those of
// packets (JSON).
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "dataplane/types/fault_settings.h"

namespace roci::control {

// A fault of packets. What it concerns: "direction" "in"|"out" (default out); "qps", "peers",
// "opcodes" as in captures; "psn", or with "psn_from_first": true counted from the first packet;
// "pass"; "cm": "req", ... (a message of the connection manager); "peer": the address at the other
// end; fault_program.h and fault_occasions.h. What it does: "drop": true; "delay_ns"; "reorder"
// (packets that go first); "duplicate"; "truncate" (bytes); "ecn": true; "set": ["bth.psn+=1", ...]
// (=, += or -=, a number or a name of the value); "flip":
// ["payload:3", ...] (headers, payload or icrc, and a bit); "icrc": "fix"|"keep" (default: fix
// after "set", keep otherwise); fault_injections.h.
absl::StatusOr<dataplane::FaultSettings> DecodeFault(const nlohmann::json& request);

nlohmann::json DescribeFault(uint32_t id, const dataplane::FaultSettings& settings,
                             const dataplane::FaultSnapshot& counters);

// Checks or adds a fault of packets, completions or calls (completion_fault_requests.h,
// call_fault_requests.h). ResourceExhausted: the device has too many.
absl::Status CheckFault(const nlohmann::json& fault);
absl::Status AddFault(Device& device, const nlohmann::json& fault);

// {"device": NAME} and one of "add": a fault; "remove": its number; "clear": true; or none of
// them. Returns the device's faults.
absl::StatusOr<nlohmann::json> RunFaultCommand(const Services& services,
                                               const nlohmann::json& request);

}  // namespace roci::control
