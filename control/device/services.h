// The parts of the daemon that sessions, connection management and management commands use. Plain
// references: the daemon outlives all of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/config/config.h"
#include "control/device/account_lookup.h"
#include "control/device/blocking_calls.h"
#include "control/device/call_times.h"
#include "control/device/device.h"
#include "control/device/foreign_fds.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "dataplane/shard/dataplane.h"
#include "memory/app_memory.h"
#include "memory/sigbus_guard.h"

namespace roci::control {

// Most mappings of program memory at one time. The kernel allows a process 65530 mappings by
// default (MappingLimit()), and rings need some; beyond this limit, regions are accessed by system
// calls.
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
  AccountLookup& accounts;
  CallTimes& call_times;
  // The contexts named by programs of user `uid`.
  std::function<std::vector<ContextName>(uid_t uid)> contexts_of = {};
  // Null: session `number` has ended.
  std::function<Session*(uint32_t number)> find_session = {};
  // Whether another session than `number` of `process` (Peer::process) has logged how the program's
  // memory is accessed.
  std::function<bool(uint64_t process, uint32_t number)> has_logged_reach = {};
  // Session `number` reads no requests until Session::Resume() returns true.
  std::function<void(uint32_t number)> resume_later = {};
  // Session `number` continues its request (Session::Continue) in later iterations of the loop.
  std::function<void(uint32_t number)> continue_later = {};

  // Null: there is no such device. It may be unplugged.
  Device* FindDevice(const std::string& name) const {
    for (const std::unique_ptr<Device>& device : devices) {
      if (device->name() == name) return device.get();
    }
    return nullptr;
  }
};

}  // namespace roci::control
