// What sessions and management share of the daemon. Plain references; the daemon outlives its
// users.
#pragma once

#include <memory>
#include <vector>

#include "control/config.h"
#include "control/device.h"
#include "control/event_loop.h"
#include "control/quota.h"
#include "dataplane/dataplane.h"

namespace roci::control {

// Mappings of app memory that the daemon holds at one time. The kernel allows a process 65530 by
// default, and rings need theirs; past it regions go through process_vm.
inline constexpr uint64_t kMaxAppMappings = 16384;

struct Services {
  EventLoop& loop;
  dataplane::Dataplane& dataplane;
  const Config& config;
  const std::vector<std::unique_ptr<Device>>& devices;
  Quota& ring_memory;   // bytes of queues and completion queues
  Quota& app_mappings;  // see kMaxAppMappings

  Device* FindDevice(const std::string& name) const {
    for (const std::unique_ptr<Device>& device : devices) {
      if (device->name() == name) return device.get();
    }
    return nullptr;
  }
};

}  // namespace roci::control
