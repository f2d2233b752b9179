// The state of a port: its link, what it uses of its driver, and what the driver has lost.
#pragma once

#include <cstdint>

namespace roci::dataplane {

struct LinkState {
  bool up = false;
  bool enabled = true;      // false: set down by the administrator
  uint32_t mtu = 0;         // Ethernet's (the L3 size)
  uint32_t speed_mbps = 0;  // 0: unknown
};

// How many queues of a port are used.
struct PortQueues {
  uint16_t rx = 1;
  uint16_t tx = 1;  // 1, or at least one per lcore
};

// The offloads that a port is configured with.
struct PortOffloads {
  uint64_t rx = 0;  // RTE_ETH_RX_OFFLOAD_*
  uint64_t tx = 0;  // RTE_ETH_TX_OFFLOAD_*
  bool none() const { return rx == 0 && tx == 0; }
};

// Frames that the NIC or its driver has lost.
struct PortLosses {
  uint64_t rx_missed = 0;     // no descriptor was free, or a queue was full
  uint64_t rx_errors = 0;     // damaged
  uint64_t rx_no_buffer = 0;  // the pool was empty
  uint64_t tx_errors = 0;
};

}  // namespace roci::dataplane
