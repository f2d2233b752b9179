#include "control/loop/runtime_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"

namespace roci::control {
namespace {

absl::Status CheckOwner(const std::string& directory) {
  struct stat st;
  if (stat(directory.c_str(), &st) != 0) return StatusFromErrno(errno, directory);
  if (!S_ISDIR(st.st_mode)) return StatusFromErrno(ENOTDIR, directory);
  if (st.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        directory, ": belongs to another user; choose another one with --runtime-dir"));
  }
  if (st.st_mode & S_IWOTH) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, ": writable by every user; choose another one with --runtime-dir"));
  }
  return absl::OkStatus();
}

std::string ReadPid(int fd) {
  char text[32] = {};
  const ssize_t count = pread(fd, text, sizeof(text) - 1, 0);
  if (count <= 0) return "?";
  text[std::strcspn(text, "\n")] = '\0';
  return text;
}

}  // namespace

absl::StatusOr<UniqueFd> LockRuntimeDir(const std::string& directory) {
  if (mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return StatusFromErrno(errno, directory);
  }
  const absl::Status status = CheckOwner(directory);
  if (!status.ok()) return status;
  const std::string path = directory + "/rocid.lock";
  // Any process that can open the file can lock it.
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() || fchmod(fd.get(), 0600) != 0) return StatusFromErrno(errno, path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return StatusFromErrno(errno, path);
    return absl::AlreadyExistsError(
        absl::StrCat(directory, ": another rocid (process ", ReadPid(fd.get()),
                     ") uses this directory; choose another one with --runtime-dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return StatusFromErrno(errno, path);
  }
  return fd;
}

absl::StatusOr<std::string> CanonicalDir(const std::string& directory) {
  char path[PATH_MAX];
  if (realpath(directory.c_str(), path) == nullptr) return StatusFromErrno(errno, directory);
  return std::string(path);
}

void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t FileLimit() {
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

uint64_t MappingLimit() {
  constexpr uint64_t kDefault = 65530;
  std::ifstream stream("/proc/sys/vm/max_map_count");
  uint64_t limit = 0;
  return stream >> limit ? limit : kDefault;
}

uint64_t CgroupMemoryLimit(const std::string& root, const std::string& own) {
  uint64_t least = UINT64_MAX;
  std::ifstream stream(own);
  std::string path;
  constexpr std::string_view kVersion2 = "0::/";
  while (std::getline(stream, path) && !path.starts_with(kVersion2)) {
  }
  if (!path.starts_with(kVersion2)) return least;
  path.erase(0, kVersion2.size() - 1);
  for (;;) {
    uint64_t limit = 0;
    // "max", which is no number: no limit.
    if (std::ifstream(root + path + "/memory.max") >> limit) least = std::min(least, limit);
    if (path.empty()) return least;
    path.erase(path.rfind('/'));
  }
}

void NotifyServiceManager(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (*path != '/' && *path != '@')) return;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, length);
  if (*path == '@') address.sun_path[0] = '\0';  // an abstract name
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return;
  sendto(fd.get(), state, std::strlen(state), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address),
         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

}  // namespace roci::control
