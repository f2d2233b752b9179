// What sessions and management share of the daemon. Plain references; the daemon outlives its
// users.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/config/config.h"
#include "control/device/device.h"
#include "control/device/foreign_fds.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "dataplane/shard/dataplane.h"
#include "memory/sigbus_guard.h"

namespace roci::control {

// Mappings of app memory that the daemon holds at one time. The kernel allows a process 65530 by
// default (MappingLimit()), and rings need theirs; past it regions go through system calls.
inline constexpr uint64_t kMaxAppMappings = 16384;
static_assert(kMaxAppMappings <= memory::SigbusGuard::kCapacity);

class Session;

struct Services {
  EventLoop& loop;
  dataplane::Dataplane& dataplane;
  const Config& config;
  const std::vector<std::unique_ptr<Device>>& devices;
  Users& users;
  ForeignFds& foreign_fds;
  // The session of user `uid` that has named the open file behind descriptor `broker_fd` of the
  // descriptor broker as its context; null if there is none.
  std::function<Session*(int broker_fd, uid_t uid)> find_context = {};
  // Session `number` reads no requests until its program's memory answers again.
  std::function<void(uint32_t number)> await_memory = {};

  Device* FindDevice(const std::string& name) const {
    for (const std::unique_ptr<Device>& device : devices) {
      if (device->name() == name) return device.get();
    }
    return nullptr;
  }
};

}  // namespace roci::control
