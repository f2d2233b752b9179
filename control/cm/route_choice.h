// Chooses the device and the source address of an identifier for its destination.
#pragma once

#include "absl/status/status.h"
#include "control/cm/cm_id.h"
#include "control/cm/port.h"

namespace roci::control::cm {

// Chooses id.port, unless the identifier is bound to one, and id.gid_index, unless it is bound to
// an address. A wildcard id.destination becomes an address of the device. Where it fails, id.port
// and id.destination may have changed.
absl::Status ChooseRoute(const Ports& ports, CmId& id);

}  // namespace roci::control::cm
