#include "control/loop/privilege.h"

#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace roci::control {
namespace {

bool SharesUserNamespace(pid_t pid) {
  struct stat theirs, ours;
  return stat(absl::StrCat("/proc/", pid, "/ns/user").c_str(), &theirs) == 0 &&
         stat("/proc/self/ns/user", &ours) == 0 && theirs.st_dev == ours.st_dev &&
         theirs.st_ino == ours.st_ino;
}

bool HasEffectiveCapability(pid_t pid, unsigned capability) {
  std::ifstream stream(absl::StrCat("/proc/", pid, "/status"));
  constexpr char kLabel[] = "CapEff:";
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(kLabel, 0) != 0) continue;
    return (std::strtoull(line.c_str() + sizeof(kLabel) - 1, nullptr, 16) >> capability & 1) != 0;
  }
  return false;
}

// The order of the checks matters. A process can enter another user namespace (where it has all
// capabilities) or call exec, but can undo neither. So each check also validates the earlier ones.
bool IsOwnerOrHas(const Peer& peer, const memory::AppMemory* program, unsigned capability) {
  if (const std::optional<bool> known = PrivilegeByUser(peer, program)) return *known;
  return HasEffectiveCapability(peer.pid, capability) && SharesUserNamespace(peer.pid) &&
         program->Alive();
}

}  // namespace

std::optional<bool> PrivilegeByUser(const Peer& peer, const memory::AppMemory* program) {
  if (peer.pid <= 0) return false;
  if (peer.uid == geteuid()) return true;
  if (program == nullptr || !program->has_process()) return false;
  return std::nullopt;
}

bool MayUseRawPackets(const Peer& peer, const memory::AppMemory* program) {
  return IsOwnerOrHas(peer, program, CAP_NET_RAW);
}

bool MayBindPrivilegedPorts(const Peer& peer, const memory::AppMemory* program) {
  return IsOwnerOrHas(peer, program, CAP_NET_BIND_SERVICE);
}

}  // namespace roci::control
