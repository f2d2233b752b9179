// Converts a program's address vector to the path of its frames. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "control/net/addresses.h"
#include "roce/frame.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

struct PathPlan {
  roce::Path path;  // complete except dst_mac, unless `resolved`
  roce::Gid next_hop;
  bool resolved = false;  // dst_mac is set: multicast
};

// The UDP source port is that of a flow from QP `local` to QP `remote` (both 0 for an address
// handle). InvalidArgument: no global address, no such port or source GID index, different address
// families, or an invalid destination. Unavailable: no route.
absl::StatusOr<PathPlan> PlanPath(const AddressTable& addresses, const roci_abi_ah_attr& attr,
                                  roce::Qpn local, roce::Qpn remote);

}  // namespace roci::control
