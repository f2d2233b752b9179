// Reads the faults of a device: its tables [[device.fault]].
#pragma once

#include <string>
#include <vector>

#include "control/config/toml_reader.h"

namespace roci::control {

// Appends each fault as a management command has it at "add", in JSON. Only the form of the values
// is checked (CheckFaults, control/check_config.h, does the rest).
void ReadFaults(TomlReader& device, std::vector<std::string>& out);

}  // namespace roci::control
