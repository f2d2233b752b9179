// Checks a configuration against this machine (processors, DPDK drivers) and its faults, and
// describes what it would start.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "control/config/config.h"

namespace roci::control {

// Call before the EAL starts. InvalidArgument with one line, "FILE: KEY: REASON", if a processor or
// a driver is missing. `file` is empty for the default configuration.
absl::Status CheckMachine(const Config& config, const std::string& file);

// InvalidArgument with one line, as above, if a device's fault is contradictory.
absl::Status CheckFaults(const Config& config, const std::string& file);

// Returns a line for the daemon and one for each device.
std::string DescribeConfig(const Config& config, const std::string& runtime_dir);

}  // namespace roci::control
