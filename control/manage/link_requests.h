// Management requests for a device's link: decodes and checks captures and impairments (JSON), and
// sets impairments.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "control/device/services.h"
#include "dataplane/types/capture_settings.h"
#include "dataplane/types/impairment_settings.h"

namespace roci::control {

// The NAME of {"device": NAME, ...}. InvalidArgument: missing.
absl::StatusOr<std::string> DeviceOfRequest(const nlohmann::json& request);

// A capture: "qps": [number...]; "peers": [number...], the queue pairs that those are connected to;
// "opcodes": [number...]; "direction": "in"|"out"|"both" (default both); "snap_length": bytes;
// "count": frames (0: no limit).
struct CaptureRequest {
  dataplane::CaptureSettings settings;
  uint64_t count = 0;
};
absl::StatusOr<CaptureRequest> DecodeCapture(const nlohmann::json& request);

// An impairment: the filter as above, "direction" "in"|"out" (default out); "loss", "duplicate",
// "corrupt", "reorder", "ecn" (probabilities 0 to 1); "delay_ns", "reorder_ns"; "rate_bps" and with
// it "rate_queue_bytes" (default 1 MiB), "rate_ecn_bytes" (default 0: no ECN marks) and
// "rate_ecn_all_bytes" (default: five times rate_ecn_bytes); "seed".
absl::StatusOr<dataplane::ImpairmentSettings> DecodeImpairment(const nlohmann::json& request);

// The "direction" of a request to clear; nothing: both.
absl::StatusOr<std::optional<dataplane::LinkDirection>> DecodeClear(const nlohmann::json& request);

// The command "impair": sets an impairment, or with "clear": true removes those of one direction or
// of both. Returns the impairments that are set afterwards.
absl::StatusOr<nlohmann::json> Impair(const Services& services, const nlohmann::json& request);

// JSON as in `roci show ports`.
nlohmann::json DescribeImpairments(const dataplane::DeviceClient& device);
nlohmann::json DescribeImpairment(const dataplane::ImpairmentSettings& settings,
                                  const dataplane::ImpairmentSnapshot& counters);

}  // namespace roci::control
