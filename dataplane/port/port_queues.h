// How many queues of a port are used, for receiving and for sending. Every receiving queue that may
// get frames must be polled, and none may be sent to that nobody reads at the other end.
#pragma once

#include <cstdint>
#include <string>

namespace roci::dataplane {

struct PortQueues {
  uint16_t rx = 1;
  uint16_t tx = 1;  // one, or one for each lcore at least
};

// What the PMD can have at most is `most`. `is_hardware`: a NIC, all of whose queues lead to its
// link.
PortQueues QueuesOf(const std::string& devargs, bool is_hardware, PortQueues most, uint32_t lcores);

// The next smaller number of receiving queues to try where a NIC refuses `queues` (some want a
// power of two); 0: there is none.
PortQueues FewerThan(PortQueues queues, uint32_t lcores);

}  // namespace roci::dataplane
