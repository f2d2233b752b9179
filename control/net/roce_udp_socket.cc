#include "control/net/roce_udp_socket.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "control/loop/errno_status.h"
#include "roce/headers.h"

namespace roci::control {

namespace {

int BindAll(int fd, int family) {
  const uint16_t port = htons(roce::kRoceUdpPort);
  if (family == AF_INET) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = port;
    return bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
  }
  const int off = 0;
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = port;
  any.sin6_addr = in6addr_any;
  return bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
}

}  // namespace

absl::StatusOr<UniqueFd> OpenRoceUdpSocket() {
  int family = AF_INET6;
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() && errno == EAFNOSUPPORT) {
    family = AF_INET;
    fd.Reset(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }
  if (!fd.valid()) return StatusFromErrno(errno, "socket");
  // "Return 0" drops every packet. Attached before bind(), so that no packet is queued.
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{1, &drop_all};
  if (setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0) {
    return StatusFromErrno(errno, "SO_ATTACH_FILTER");
  }
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (BindAll(fd.get(), family) != 0) return StatusFromErrno(errno, "bind");
  return fd;
}

}  // namespace roci::control
