#include "dataplane/stale_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/shared_memory.h"

namespace roci::dataplane {

// What is no socket refuses connections as well, and is somebody's. One that somebody has answers a
// datagram socket with EPROTOTYPE, or takes it, and notices nothing (unix(7)).
bool RemoveStaleSocket(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return false;
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (!fd.valid() || connect(fd.get(), name, sizeof(address)) == 0 || errno != ECONNREFUSED) {
    return false;
  }
  return unlink(path.c_str()) == 0;
}

}  // namespace roci::dataplane
