// Makes the daemon's devices visible in /sys/class, /dev/infiniband and /etc/libibverbs.d of the
// caller's mount namespace, which must be private.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace roci::tools {

// `sysfs` is the daemon's tree (abi::SysfsPath), `driver` the path of the plugins
// (Plugins::driver). Devices of the kernel stay visible; those of another daemon, from an outer
// `roci run`, do not.
// `*needs_driver_variable` becomes true if this machine has no /etc/libibverbs.d, so that the
// plugins must be named in the environment.
absl::Status ShowDevices(const std::string& sysfs, const std::string& driver,
                         bool* needs_driver_variable);

}  // namespace roci::tools
