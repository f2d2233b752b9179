// Checks whether a program may do something that needs a capability on Linux.
#pragma once

#include <cstdint>
#include <optional>

#include "control/loop/socket.h"
#include "memory/app_memory.h"

namespace roci::control {

// Raw packet queue pairs and flow rules can read and forge the frames of all users of the port. The
// daemon's own user may use them, since it could as well stop the daemon and open the port. Other
// users need CAP_NET_RAW, effective, in the daemon's user namespace: in its own user namespace
// every program has all capabilities.
//
// `peer` comes from SO_PEERCRED; the capabilities of its process are read now. They count only
// while the process still runs `program`, which was opened when the peer connected: after exec of a
// set-user-ID program the process has capabilities that the peer never had. `program` null or
// without a process: only the daemon's own user is allowed. A process that this PID namespace does
// not show is never allowed.
//
// Both functions may block as long as the peer's process wants.
bool MayUseRawPackets(const Peer& peer, const memory::AppMemory* program);

// The same for ports below 1024 with CAP_NET_BIND_SERVICE.
inline constexpr uint16_t kFirstFreePort = 1024;
bool MayBindPrivilegedPorts(const Peer& peer, const memory::AppMemory* program);

// Their answer, where it does not take a look at the process. Never blocks.
std::optional<bool> PrivilegeByUser(const Peer& peer, const memory::AppMemory* program);

}  // namespace roci::control
