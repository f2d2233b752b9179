// Whether a program may do what Linux asks a capability for.
#pragma once

#include <cstdint>
#include <optional>

#include "control/loop/socket.h"
#include "memory/app_memory.h"

namespace roci::control {

// Raw packet queue pairs and flow rules see and forge frames of everybody on the port. The daemon's
// own user may have them, since it could as well stop the daemon and open the port; others need
// CAP_NET_RAW, effective, in the daemon's own user namespace (in one of its own every program has
// all capabilities). Who connected is known by SO_PEERCRED; its capabilities are read now. They
// count only while the process still runs `program`, which was opened when the peer connected:
// after exec of a set-user-ID program the process has capabilities that the peer never had. Null,
// or without a process: nothing is known of it; only the daemon's own user is allowed then. Nobody
// is whose process this PID namespace does not show.
// Both functions block as long as the process likes.
bool MayUseRawPackets(const Peer& peer, const memory::AppMemory* program);
// Ports below 1024, likewise: CAP_NET_BIND_SERVICE.
inline constexpr uint16_t kFirstFreePort = 1024;
bool MayBindPrivilegedPorts(const Peer& peer, const memory::AppMemory* program);

// Their answer, where it does not take a look at the process. Never blocks.
std::optional<bool> PrivilegeByUser(const Peer& peer, const memory::AppMemory* program);

}  // namespace roci::control
