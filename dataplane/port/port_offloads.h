// The offloads that a port is configured with. RoCE frames need none: see docs/ports.md.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

struct rte_eth_dev_info;

namespace roci::dataplane {

struct PortOffloads {
  uint64_t rx = 0;  // RTE_ETH_RX_OFFLOAD_*
  uint64_t tx = 0;  // RTE_ETH_TX_OFFLOAD_*
  bool none() const { return rx == 0 && tx == 0; }
};

// Checksums of raw packets: all that the port can fill in, and the check of received ones if a NIC
// offers it for all kinds. (Virtual ports check in software, for every frame, or deliver frames
// without checksums.)
PortOffloads ChecksumOffloads(const rte_eth_dev_info& info, bool is_hardware);

// "tx_udp_checksum", ...
std::vector<std::string_view> NamesOf(PortOffloads offloads);

}  // namespace roci::dataplane
