// From an address vector as programs give it to the path that frames take. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "control/net/addresses.h"
#include "roce/frame.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

struct PathPlan {
  roce::Path path;  // complete but for dst_mac, unless `resolved`
  roce::Gid next_hop;
  bool resolved = false;  // a multicast group: its MAC follows from the address
};

// InvalidArgument: no global address, a port or source GID index that does not exist, families that
// differ, a destination that cannot be one. Unavailable: no route. UDP source port as for a flow
// from QP `local` to QP `remote` (both 0 for an address handle).
absl::StatusOr<PathPlan> PlanPath(const AddressTable& addresses, const roci_abi_ah_attr& attr,
                                  roce::Qpn local, roce::Qpn remote);

}  // namespace roci::control
