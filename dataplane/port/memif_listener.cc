#include "dataplane/port/memif_listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string_view>

#include "dataplane/base/eal.h"
#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {
namespace {

// A path, or an abstract name without its leading zero byte (unix(7)).
std::string NameOf(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.sun_family != AF_UNIX) return "";
  const std::string_view path(address.sun_path, sizeof(address.sun_path));
  const std::string_view name = path.substr(path[0] == '\0' ? 1 : 0);
  return std::string(name.substr(0, name.find('\0')));
}

bool Listens(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

int FindListener(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && Listens(fd) && NameOf(fd) == path) return fd;
  }
  return -1;
}

}  // namespace

// Replaces the socket by a descriptor that is never readable: the interrupt thread keeps the number
// in its list forever, and panics if it is no descriptor.
void EndMemifListener(const std::string& path) {
  const int listener = path.empty() ? -1 : FindListener(path);
  const Fd silence(eventfd(0, EFD_CLOEXEC));
  if (listener < 0 || !silence.valid()) return;
  dup3(silence.get(), listener, O_CLOEXEC);
  RunOnInterruptThread([] {});
}

}  // namespace roci::dataplane
