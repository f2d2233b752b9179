// The offloads that a port is configured with. RoCE frames need none: see docs/ports.md.
#pragma once

#include <string_view>
#include <vector>

#include "dataplane/types/port_state.h"

struct rte_eth_dev_info;

namespace roci::dataplane {

// Checksums of raw packets: all that the port can fill in, and the check of received ones if a NIC
// offers it for all kinds. (Virtual ports check in software, for every frame, or deliver frames
// without checksums.)
PortOffloads ChecksumOffloads(const rte_eth_dev_info& info, bool is_hardware);

// "tx_udp_checksum", ...
std::vector<std::string_view> NamesOf(PortOffloads offloads);

}  // namespace roci::dataplane
