// Reads the tables of the configuration that are about the daemon: [daemon], [memory] and [limits].
#pragma once

#include "control/config/config.h"

namespace roci::control {

class TomlReader;

void ReadDaemon(TomlReader& reader, DaemonConfig& out);
void ReadMemory(TomlReader& reader, MemoryConfig& out);
void ReadLimits(TomlReader& reader, LimitsConfig& out);

}  // namespace roci::control
