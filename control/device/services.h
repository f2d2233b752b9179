// What sessions and management share of the daemon. Plain references; the daemon outlives its
// users.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/config/config.h"
#include "control/device/blocking_calls.h"
#include "control/device/device.h"
#include "control/device/foreign_fds.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "dataplane/shard/dataplane.h"
#include "memory/app_memory.h"
#include "memory/sigbus_guard.h"

namespace roci::control {

// Mappings of app memory that the daemon holds at one time. The kernel allows a process 65530 by
// default (MappingLimit()), and rings need theirs; past it regions go through system calls.
inline constexpr uint64_t kMaxAppMappings = 16384;
static_assert(kMaxAppMappings <= memory::SigbusGuard::kCapacity);

class Session;

// By which processes name a context of another process of their user.
struct ContextName {
  uint32_t session;  // that has the context
  pid_t pid;
  int fd;  // of the process: the context's open file
  std::shared_ptr<const memory::AppMemory> app;
};

struct Services {
  EventLoop& loop;
  dataplane::Dataplane& dataplane;
  const Config& config;
  const std::vector<std::unique_ptr<Device>>& devices;
  Users& users;
  ForeignFds& foreign_fds;
  BlockingCalls& blocking_calls;
  // The contexts that programs of user `uid` have named.
  std::function<std::vector<ContextName>(uid_t uid)> contexts_of = {};
  // Null: it has ended.
  std::function<Session*(uint32_t number)> find_session = {};
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
