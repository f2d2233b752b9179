// Whether DPDK or the daemon has a driver for a port. Works before the EAL is started.
#pragma once

#include <string>

namespace roci::dataplane {

// Whether the port is "packet:NAME", or a bus and, for virtual ports, a driver knows `devargs`
// ("net_tap0,iface=x", a PCI address). Loads DPDK's plugins as the EAL does. Does not check that
// the port exists.
bool HasPortDriver(const std::string& devargs);

// Whether DPDK has its driver "ring" for memory pools, which the frames of all ports and wires
// need.
bool HasMempoolDriver();

}  // namespace roci::dataplane
