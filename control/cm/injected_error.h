// Errors of faults (control/device/call_faults.h) that commands of librdmacm get.
#pragma once

#include <cstdint>

#include "control/cm/cm_id.h"

namespace roci::control::cm {

// The errno that a fault of the identifier's device gives to a command of the program, and counts
// it; 0: none. The identifier must have a device.
int InjectedError(const CmId& id, uint32_t command);
// The same for the command's answer. Resolutions are refused by an event instead
// (address_resolution.h). The identifier may have no device.
int InjectedErrorOfAnswer(const CmId& id, uint32_t command);

}  // namespace roci::control::cm
