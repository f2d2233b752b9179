#include "dataplane/port/driver_descriptors.h"

#include <dirent.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace roci::dataplane {
namespace {

// The open descriptors of this process for which `is_wanted(fd)`, sorted.
std::vector<int> OpenDescriptors(const std::function<bool(int)>& is_wanted) {
  std::vector<int> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && is_wanted(fd)) out.push_back(fd);
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool IsSocketOf(int fd, int family) {
  int domain = -1;
  socklen_t bytes = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == family;
}

bool IsEventFd(int fd) {
  constexpr std::string_view kTarget = "anon_inode:[eventfd]";
  std::array<char, kTarget.size() + 1> target;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  return length >= 0 && std::string_view(target.data(), static_cast<size_t>(length)) == kTarget;
}

bool IsKnownKind(int fd) {
  return IsSocketOf(fd, AF_PACKET) || IsSocketOf(fd, AF_XDP) || IsEventFd(fd);
}

std::vector<int> Without(std::vector<int> descriptors, const std::vector<int>& others) {
  std::erase_if(descriptors,
                [&](int fd) { return std::binary_search(others.begin(), others.end(), fd); });
  return descriptors;
}

}  // namespace

DriverDescriptors::DriverDescriptors() : before_(OpenDescriptors(IsKnownKind)) {}

std::vector<int> DriverDescriptors::Sockets(int family) const {
  return Without(OpenDescriptors([&](int fd) { return IsSocketOf(fd, family); }), before_);
}

std::vector<int> DriverDescriptors::EventFds() const {
  return Without(OpenDescriptors(IsEventFd), before_);
}

}  // namespace roci::dataplane
