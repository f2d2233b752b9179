// Reads common keys of management requests on addresses and routes, and builds their refusals.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "control/device/services.h"

namespace roci::control {

// The string at `key`. InvalidArgument: missing.
absl::StatusOr<std::string> RequestText(const nlohmann::json& request, const char* key);
// The device named by "device". NotFound: no such device.
absl::StatusOr<Device*> RequestDevice(const Services& services, const nlohmann::json& request);
// FailedPrecondition: the device is unplugged.
absl::Status CheckPlugged(const Device& device);
// "vlan"; 0 if it is missing.
absl::StatusOr<uint16_t> RequestVlan(const nlohmann::json& request);

// "DEVICE: WHAT: REASON"
absl::Status RequestRefusal(absl::string_view device, absl::string_view what,
                            absl::string_view reason);

}  // namespace roci::control
