// The ports of the daemon with their communication managers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/cm/engine.h"
#include "control/device/device.h"

namespace roci::control::cm {

// A device and its engine.
struct Port {
  Port(Device& port_device, const EngineConfig& config, uint64_t seed)
      : device(port_device), engine(config, seed) {}
  Device& device;
  Engine engine;
  uint32_t psn = 0;  // of the next datagram of QP 1

  bool is_plugged() const { return device.is_plugged(); }
};

// In the order of the daemon's devices; never changes.
using Ports = std::vector<std::unique_ptr<Port>>;

// The plugged port with this address, in any VLAN. Null: none.
inline Port* PortOf(const Ports& ports, const roce::Gid& own_address) {
  for (const std::unique_ptr<Port>& port : ports) {
    if (port->is_plugged() && port->device.addresses().IndexInAnyVlan(own_address)) {
      return port.get();
    }
  }
  return nullptr;
}

}  // namespace roci::control::cm
