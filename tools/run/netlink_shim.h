// Lets programs ask the daemon by RDMA netlink, as rdma(8) does.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace roci::tools {

// Adds libroci-netlink.so (verbs_provider/netlink) of the plugins' folder to LD_PRELOAD, in front.
// NotFound, with nothing changed: it is not there, or its path cannot be in the list.
absl::Status PreloadNetlinkShim(const std::string& folder);

}  // namespace roci::tools
