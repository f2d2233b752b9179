// The Container Device Interface file of a daemon's devices: what a container engine adds to a
// container (github.com/cncf-tags/container-device-interface, SPEC.md, version 0.3.0).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/run/find_plugin.h"

namespace roci::tools {

// Vendor and class. A device is named to container engines by kind=NAME, e.g. rocinante/nic=roci0.
inline constexpr char kCdiKind[] = "rocinante/nic";
// The name of the entry with all devices.
inline constexpr char kCdiAll[] = "all";
// Where container engines look for files; the file's name is free.
inline constexpr char kCdiPath[] = "/etc/cdi/rocinante-nic.json";

// Paths inside containers. The runtime directory keeps its path, because the device tree names the
// daemon's socket by it.
inline constexpr char kCdiSysfs[] = "/run/rocinante/sys";
inline constexpr char kCdiPlugins[] = "/run/rocinante/lib";

struct CdiSource {
  std::string runtime_dir;  // absolute
  Plugins plugins;          // at least one
};

// The text of the file (JSON), from the devices that the daemon has now. NotFound: the daemon has
// no device.
absl::StatusOr<std::string> CdiFile(const CdiSource& source);

}  // namespace roci::tools
