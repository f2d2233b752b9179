// The environment variables by which libibverbs finds the plugins and devices.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace roci::tools {

/// Sets the variable `name`.
absl::Status Export(const char* name, const std::string& value);

/// Puts `value` at the beginning of the list (separated by ':') in the variable `name`.
absl::Status ExportFirst(const char* name, const std::string& value);

/// Removes what an outer `roci run` has set; other drivers and preloaded libraries stay.
void RemoveDevicesFromEnvironment();

/// Adds the plugins (Plugins::driver) to libibverbs' drivers.
absl::Status NameDriver(const std::string& driver);

/// Adds the library before the other preloaded ones.
absl::Status Preload(const std::string& library);

}  // namespace roci::tools
