#include "control/loop/privilege.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace roci::control {
namespace {

// Allocates nothing: called where a failure could not be reported.
bool SharesUserNamespace(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
  struct stat theirs, ours;
  return stat(path, &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
         theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

// Bits CAP_*; 0: the process has ended. 0 is the calling thread.
uint64_t EffectiveCapabilities(pid_t pid) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return 0;
  return uint64_t{data[1].effective} << 32 | data[0].effective;
}

// Of the calling thread.
bool SetEffectiveCapabilities(uint64_t capabilities) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective = static_cast<uint32_t>(capabilities);
  data[1].effective = static_cast<uint32_t>(capabilities >> 32);
  return syscall(SYS_capset, &header, data) == 0;
}

// A process can enter another user namespace, where it has all capabilities, but cannot return. So
// the second check also validates the first.
bool HasCapabilities(pid_t pid, uint64_t capabilities) {
  return (EffectiveCapabilities(pid) & capabilities) == capabilities && SharesUserNamespace(pid);
}

bool HasExited(const UniqueFd& pidfd) {
  pollfd exited{pidfd.get(), POLLIN, 0};
  return pidfd.valid() && poll(&exited, 1, 0) != 0;
}

std::optional<bool> Known(const Peer& peer, const memory::AppMemory* program, unsigned capability) {
  if (peer.pid <= 0) return false;
  if (peer.is_own_user()) {
    if (geteuid() != 0) return true;
    // Exec gives such a process no rights that it did not have when it connected. A daemon without
    // the capability needs none.
    const uint64_t needed = EffectiveCapabilities(0) & uint64_t{1} << capability;
    return HasCapabilities(peer.pid, needed) && !HasExited(peer.pidfd);
  }
  if (program == nullptr || !program->has_process()) return false;
  return std::nullopt;
}

// Like HasCapabilities, the last check also validates the earlier ones: exec cannot be undone.
bool May(const Peer& peer, const memory::AppMemory* program, unsigned capability) {
  if (const std::optional<bool> known = Known(peer, program, capability)) return *known;
  return HasCapabilities(peer.pid, uint64_t{1} << capability) && program->Alive();
}

}  // namespace

WithoutFileCapabilities::WithoutFileCapabilities() : before_(EffectiveCapabilities(0)) {
  constexpr unsigned kOfFiles[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
                                   CAP_FOWNER, CAP_FSETID,       CAP_LINUX_IMMUTABLE,
                                   CAP_MKNOD,  CAP_MAC_OVERRIDE};
  uint64_t rest = before_;
  for (const unsigned capability : kOfFiles) rest &= ~(uint64_t{1} << capability);
  ok_ = SetEffectiveCapabilities(rest);
}

WithoutFileCapabilities::~WithoutFileCapabilities() {
  if (ok_) SetEffectiveCapabilities(before_);
}

bool HasRightsOfDaemon(pid_t pid, uid_t uid) {
  if (pid <= 0) return false;
  if (uid != 0) return uid == geteuid();
  // A daemon without capabilities cannot compare namespaces with root, and has nothing to lend it.
  const uint64_t ours = EffectiveCapabilities(0);
  return ours == 0 || HasCapabilities(pid, ours);
}

bool MayUseRawPackets(const Peer& peer, const memory::AppMemory* program) {
  return May(peer, program, CAP_NET_RAW);
}

bool MayBindPrivilegedPorts(const Peer& peer, const memory::AppMemory* program) {
  return May(peer, program, CAP_NET_BIND_SERVICE);
}

std::optional<bool> KnownRawPackets(const Peer& peer, const memory::AppMemory* program) {
  return Known(peer, program, CAP_NET_RAW);
}

std::optional<bool> KnownPrivilegedPorts(const Peer& peer, const memory::AppMemory* program) {
  return Known(peer, program, CAP_NET_BIND_SERVICE);
}

}  // namespace roci::control
