#include "dataplane/port/stale_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {

namespace {

// The errno of connecting a datagram socket to `path`, 0 if it succeeds; a listener notices nothing
// (unix(7)). ENOENT: not a socket, where connecting would be refused too.
int AnswerAt(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return ENOENT;
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return ENOENT;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  return fd.valid() && connect(fd.get(), name, sizeof(address)) == 0 ? 0 : errno;
}

}  // namespace

bool RemoveStaleSocket(const std::string& path) {
  return AnswerAt(path) == ECONNREFUSED && unlink(path.c_str()) == 0;
}

bool IsListenedAt(const std::string& path) { return AnswerAt(path) == EPROTOTYPE; }

}  // namespace roci::dataplane
