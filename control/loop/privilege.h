// Checks whether a program may do something that needs a capability on Linux.
#pragma once

#include <cstdint>
#include <optional>

#include "control/loop/socket.h"
#include "memory/app_memory.h"

namespace roci::control {

// Whether process `pid` of `uid` may do whatever the daemon may: a process of the daemon's own
// user, or of root. Root counts only while its effective capabilities include all of the daemon's,
// in the daemon's user namespace: the root of a container usually lacks most of them. Never blocks.
bool HasRightsOfDaemon(pid_t pid, uid_t uid);

// Takes the calling thread's capabilities for files away until the end of the scope, as the kernel
// does for a file-system user ID other than root's: opens files as a root without them.
class WithoutFileCapabilities {
 public:
  WithoutFileCapabilities();
  ~WithoutFileCapabilities();
  WithoutFileCapabilities(const WithoutFileCapabilities&) = delete;
  WithoutFileCapabilities& operator=(const WithoutFileCapabilities&) = delete;
  // False: nothing has changed.
  bool ok() const { return ok_; }

 private:
  uint64_t before_ = 0;  // effective
  bool ok_ = false;
};

// Raw packet queue pairs, flow rules and the privileged Q_Key can read and forge the frames of all
// users of the port. They need CAP_NET_RAW, effective, in the daemon's user namespace: in its own
// user namespace every program has all capabilities. If the daemon is an ordinary user's, that
// user's programs need nothing, since they could as well stop the daemon and open the port.
// (Those of others, with --all-users, do.)
//
// `peer` comes from PeerOf(); the capabilities of its process are read now. They count only while
// the process still runs `program`, which was opened when the peer connected: after exec of a
// set-user-ID program the process has capabilities that the peer never had. `program` null or
// without a process: only a peer that had the daemon's rights when it connected is allowed. A
// process that this PID namespace does not show is never allowed.
//
// Both functions may block as long as the peer's process wants.
bool MayUseRawPackets(const Peer& peer, const memory::AppMemory* program);

// The same for ports below 1024 with CAP_NET_BIND_SERVICE.
inline constexpr uint16_t kFirstFreePort = 1024;
bool MayBindPrivilegedPorts(const Peer& peer, const memory::AppMemory* program);

// Their answers, where they do not take a look at the program. Never block.
std::optional<bool> KnownRawPackets(const Peer& peer, const memory::AppMemory* program);
std::optional<bool> KnownPrivilegedPorts(const Peer& peer, const memory::AppMemory* program);

}  // namespace roci::control
