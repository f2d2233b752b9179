// What a configuration asks of the machine, beyond what the file itself can tell, and what it would
// start, in words.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "control/config/config.h"

namespace roci::control {

// InvalidArgument with one line, "FILE: KEY: REASON", where processors or drivers are not there.
// `file` is empty for the default configuration. Before the EAL is started.
absl::Status CheckMachine(const Config& config, const std::string& file);

// A line for the daemon and one for each device.
std::string DescribeConfig(const Config& config, const std::string& runtime_dir);

}  // namespace roci::control
