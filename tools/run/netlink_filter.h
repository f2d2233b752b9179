// Makes libibverbs list devices from /sys. If the kernel has an RDMA core, with or without devices,
// libibverbs lists devices by netlink instead and does not find those of the daemon.
#pragma once

#include "absl/status/status.h"

namespace roci::tools {

// Whether a socket of this netlink family can be created. May load the kernel module for it, as
// libibverbs would.
bool HasNetlink(int family);

// From now on, creating a netlink socket of `family` fails with EPROTONOSUPPORT in this process and
// its descendants. Needs CAP_SYS_ADMIN in the user namespace, or no_new_privs.
absl::Status RefuseNetlink(int family);

}  // namespace roci::tools
