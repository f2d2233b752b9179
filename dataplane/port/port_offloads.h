// Which of its offloads a port is asked for. What leaves or comes as RoCE needs none: see
// docs/ports.md.
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

// Checksums of raw packets: all that the port fills in; and a NIC's word on received ones, if it
// speaks of all of them. (Virtual ports compute them in software, for frames that nobody asks
// about, or hand over frames that have none yet.)
PortOffloads ChecksumOffloads(const rte_eth_dev_info& info, bool is_hardware);

// "tx_udp_checksum", ...
std::vector<std::string_view> NamesOf(PortOffloads offloads);

}  // namespace roci::dataplane
