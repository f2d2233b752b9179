// The network device of the kernel's that a port sits on, where it does: what the kernel says of it
// now. DPDK's drivers for such ports look at it once, or never.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/shared_memory.h"

namespace roci::dataplane {

struct NetworkDevice {
  bool enabled = false;  // by the administrator
  bool running = false;  // enabled, and frames can pass
  uint32_t mtu = 0;
  uint32_t speed_mbps = 0;  // 0: unknown
};

// By its number, in the network namespace of the caller: another device of the same name is not the
// one that the port was opened on. Nothing once it is gone.
std::optional<NetworkDevice> ReadNetworkDevice(uint32_t index);

// Keeps it from filtering groups (packet(7), PACKET_MR_ALLMULTI), as long as the descriptor is
// open: the kernel knows nothing of the device's groups, those of neighbour discovery among them.
// Not valid without CAP_NET_RAW.
Fd HoldAllGroups(uint32_t index);

}  // namespace roci::dataplane
