// Reads a [[device]] of the configuration, without regard to other devices.
#pragma once

#include <string>

#include "control/config/config.h"

namespace roci::control {

class TomlReader;

// The key "name" of a device or a wire, which is required.
void ReadName(TomlReader& reader, std::string& out);
void ReadDevice(TomlReader& reader, DeviceConfig& out);

}  // namespace roci::control
