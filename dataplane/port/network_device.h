// The state of the kernel network device below a port. DPDK's drivers for such ports read it once
// or never.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {

struct NetworkDevice {
  bool enabled = false;  // by the administrator
  bool running = false;  // enabled, and frames can pass
  uint32_t mtu = 0;
  uint32_t speed_mbps = 0;  // 0: unknown
};

// Reads a device by its index in the caller's network namespace (another device may have taken its
// name). Nothing: the device has been removed.
std::optional<NetworkDevice> ReadNetworkDevice(uint32_t index);

// Frames that the device receives besides those that the kernel wants.
enum class Reception : uint8_t {
  kAllGroups,    // to any multicast group, as the kernel does not know ours
  kAllStations,  // to any station ("promiscuous")
};

// Makes the device receive them as long as the descriptor is open (packet(7),
// PACKET_ADD_MEMBERSHIP). Invalid without CAP_NET_RAW.
Fd HoldReception(uint32_t index, Reception what);

// Takes the errors that the kernel has reported to sockets on a device, as when its link goes down.
// A socket with an error is readable though no frame waits.
void TakeErrors(const std::vector<int>& sockets);

}  // namespace roci::dataplane
