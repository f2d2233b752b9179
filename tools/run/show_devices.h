// Puts the daemon's devices where programs look: below /sys/class, /dev/infiniband and
// /etc/libibverbs.d. In the caller's mount namespace, which must be private.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace roci::tools {

// `sysfs` is the daemon's tree (abi::SysfsPath), `plugin` the absolute path of the provider.
// Devices of the kernel stay visible; those of another daemon, which an outer `roci run` showed, do
// not.
// `*needs_driver_variable` becomes true where this machine has no /etc/libibverbs.d, so that the
// plugin can only be named by the environment.
absl::Status ShowDevices(const std::string& sysfs, const std::string& plugin,
                         bool* needs_driver_variable);

// The plugin's path as libibverbs wants it: without "-rdmavN.so". Empty if it does not end so.
std::string DriverName(const std::string& plugin);

}  // namespace roci::tools
