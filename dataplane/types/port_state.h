// The state of a port: its link, what it uses of its driver, and what the driver has lost.
#pragma once

#include <cstdint>
#include <optional>

namespace roci::dataplane {

enum class FlowControlUse : uint8_t {
  kAuto,  // pause frames in both directions, if the port offers them
  kOn,    // required
  kOff,
};

// Settings of a port.
struct PortSettings {
  uint32_t rx_ring = 0;  // frames in each receive ring; 0: automatic
  FlowControlUse pause = FlowControlUse::kAuto;
  uint8_t pfc_priorities = 0;  // a bit for each priority with PFC, which is required
  // Frames that arrive while the receive ring is filled to this share are handled as CE-marked; 0:
  // never. Nothing: automatic.
  std::optional<uint8_t> rx_backlog_percent;
};

// Flow control that is switched on.
struct PortFlowControl {
  bool rx_pause = false;  // pause frames of the peer stop sending
  bool tx_pause = false;  // full receive rings send pause frames
  uint8_t pfc_priorities = 0;
};

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
