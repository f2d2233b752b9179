// Finds the runtime directory of a running daemon.
#include "tools/run/daemon_directory.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "control/loop/unique_fd.h"
#include "verbs_provider/abi/rdma_netlink.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

// The daemon opens it when its device tree is complete.
constexpr char kLastSocketName[] = ROCI_ABI_NETLINK_SOCKET_NAME;

// Connects and disconnects: a socket file may outlive its daemon.
absl::Status CheckDaemon(const std::string& runtime_dir, const std::string& socket_name) {
  const std::string path = absl::StrCat(runtime_dir, "/", socket_name);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of the socket is too long: ", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const control::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::OkStatus();
  }
  if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED) {
    return absl::UnavailableError(
        absl::StrCat("no daemon is running at ", runtime_dir,
                     " (start rocid, or name its directory with --runtime-dir or $",
                     abi::kRuntimeDirVariable, ")"));
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot reach the daemon at ", path));
}

}  // namespace

absl::StatusOr<std::string> DirectoryOfDaemon(const std::string& given) {
  const std::string path = abi::RuntimeDir(given.c_str(), abi::RuntimeDirUse::kConnect);
  const absl::Status status = CheckDaemon(path, abi::kSocketName);
  if (!status.ok()) return status;
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot find ", path));
  }
  return std::string(resolved);
}

absl::StatusOr<std::string> AwaitDaemon(const std::string& given, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(limit_s);
  for (;;) {
    absl::StatusOr<std::string> directory = DirectoryOfDaemon(given);
    const bool is_ready = directory.ok() && CheckDaemon(*directory, kLastSocketName).ok();
    const bool never = !directory.ok() && !absl::IsUnavailable(directory.status());
    if (is_ready || never || Clock::now() >= end) return directory;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace roci::tools
