// Makes libibverbs look into /sys: where the kernel has an RDMA core, with or without devices, it
// lists devices by netlink instead, and would never see ours.
#pragma once

#include "absl/status/status.h"

namespace roci::tools {

// True if a socket of this netlink family can be made. Loads the kernel's module for it, as
// libibverbs would.
bool HasNetlink(int family);

// From now on, in this process and its descendants, making a netlink socket of `family` fails with
// EPROTONOSUPPORT. Takes CAP_SYS_ADMIN in the user namespace, or no_new_privs.
absl::Status RefuseNetlink(int family);

}  // namespace roci::tools
