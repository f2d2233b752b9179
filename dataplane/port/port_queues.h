// How many queues of a port are used. Every receive queue that can get frames must be polled, and
// frames must not be sent to a queue that the peer does not read.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/types/port_state.h"

namespace roci::dataplane {

// `most`: the limits of the PMD. `is_hardware`: a NIC, where all queues send to the link.
PortQueues QueuesOf(const std::string& devargs, bool is_hardware, PortQueues most, uint32_t lcores);

// The next smaller number of receive queues to try when a NIC refuses `queues` (some want a power
// of two). rx 0: none is left.
PortQueues FewerThan(PortQueues queues, uint32_t lcores);

}  // namespace roci::dataplane
