// The link state of a port, by its driver and by the network device below it.
#pragma once

#include <algorithm>
#include <optional>

#include "dataplane/port/network_device.h"
#include "dataplane/types/port_state.h"

namespace roci::dataplane {

// `port`: the state by the driver, with the largest MTU of the port. `below`: the state of its
// network device; nothing if the device has been removed.
constexpr LinkState OnNetworkDevice(LinkState port, const std::optional<NetworkDevice>& below) {
  if (!below.has_value()) return {.up = false, .enabled = port.enabled, .mtu = port.mtu};
  return {.up = port.up && below->running,
          .enabled = port.enabled && below->enabled,
          .mtu = std::min(port.mtu, below->mtu),
          .speed_mbps = below->speed_mbps};
}

}  // namespace roci::dataplane
