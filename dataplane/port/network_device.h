// The network device of the kernel's that a port sits on, where it does: what the kernel says of it
// now. DPDK's drivers for such ports look at it once, or never.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/base/shared_memory.h"

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

// What it is to pass on beside the frames that the kernel wants for itself.
enum class Reception : uint8_t {
  kAllGroups,    // frames to any group, of which the kernel does not know ours
  kAllStations,  // frames to anybody ("promiscuous")
};

// Makes it pass these on as long as the descriptor is open, beside others who ask for the same
// (packet(7), PACKET_ADD_MEMBERSHIP). Not valid without CAP_NET_RAW.
Fd HoldReception(uint32_t index, Reception what);

}  // namespace roci::dataplane
