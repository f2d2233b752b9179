#include "tools/scenario/tcp_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace roci::tools {
namespace {

using control::UniqueFd;

constexpr uint16_t kFirst = 20000;
constexpr uint16_t kLast = 32000;

// An abstract socket (unix(7)): it lies in the network namespace and goes with its process.
UniqueFd Reserve(uint16_t port) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string name = absl::StrCat("rocinante-test-port-", port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) fd.Reset();
  return fd;
}

bool CanBind(uint16_t port) {
  const UniqueFd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.valid()) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  const UniqueFd old(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return bind(old.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

bool IsListeningIn(const char* table, uint16_t port) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(table, "re"), std::fclose);
  if (file == nullptr) return false;
  constexpr unsigned kListen = 0x0A;  // TCP_LISTEN
  char line[512];
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    unsigned local = 0;
    unsigned state = 0;
    if (std::sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
        local == port && state == kListen) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<TcpPort> TcpPort::Choose() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, kLast);
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries; ++i) {
    TcpPort out;
    out.number_ = static_cast<uint16_t>(ports(random));
    out.reservation_ = Reserve(out.number_);
    if (out.reservation_.valid() && CanBind(out.number_)) return out;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("there is no free TCP port from ", kFirst, " to ", kLast));
}

bool IsListening(uint16_t port) {
  return IsListeningIn("/proc/net/tcp", port) || IsListeningIn("/proc/net/tcp6", port);
}

}  // namespace roci::tools
