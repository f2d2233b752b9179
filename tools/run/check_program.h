// Whether a program can find the devices, and what to tell its user if not.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/run/find_plugin.h"
#include "tools/run/program.h"

namespace roci::tools {

/// FailedPrecondition if the program is linked with a libibverbs for which there is no plugin.
absl::Status CheckProgram(const Program& program, const Plugins& plugins);

/// Message about a libibverbs without a plugin that the program, or one that it starts, may
/// load; empty: nothing.
std::string WarningFor(const Program& program, const Plugins& plugins);

/// Whether the preloaded library can be loaded into the program.
bool CanPreload(const Program& program);

}  // namespace roci::tools
