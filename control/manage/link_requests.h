// What management asks of a device's link: captures and impairments as JSON, checked
// and done.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "dataplane/link/capture_tap.h"
#include "dataplane/link/impairment.h"

namespace roci::control {

// {"device": NAME, ...}; InvalidArgument without one.
absl::StatusOr<std::string> DeviceOfRequest(const nlohmann::json& request);

// Of a capture: "qps": [number...], "peers": the same, of the queue pairs to which these are
// connected; "opcodes": [number...], "direction": "in"|"out"|"both" (both), "snap_length": bytes,
// "count": frames (0: no bound).
struct CaptureRequest {
  dataplane::CaptureSettings settings;
  uint64_t count = 0;
};
absl::StatusOr<CaptureRequest> DecodeCapture(const nlohmann::json& request);

// Of an impairment: the filter as above, "direction" "in"|"out" (out), "loss", "duplicate",
// "corrupt", "reorder", "ecn" (probabilities 0 to 1), "delay_ns", "reorder_ns", "rate_bps" and with
// it "rate_queue_bytes" (1 MiB), "rate_ecn_bytes" (0: no marks) and "rate_ecn_all_bytes" (five
// times that), "seed".
absl::StatusOr<dataplane::ImpairmentSettings> DecodeImpairment(const nlohmann::json& request);

// "direction" of a request to clear; nothing: both.
absl::StatusOr<std::optional<dataplane::LinkDirection>> DecodeClear(const nlohmann::json& request);

// The command "impair": sets one on its device, or with "clear": true removes those of one
// direction or all. Answers what is set then.
absl::StatusOr<nlohmann::json> Impair(const Services& services, const nlohmann::json& request);

// As `roci show ports` has it.
nlohmann::json DescribeImpairments(const dataplane::Device& device);
nlohmann::json DescribeImpairment(const dataplane::ImpairmentSettings& settings,
                                  const dataplane::ImpairmentSnapshot& counters);

}  // namespace roci::control
