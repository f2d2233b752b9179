#include "control/loop/event_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

#include "control/loop/errno_status.h"

namespace roci::control {

absl::Status OpenEventSocket(UniqueFd& sending, UniqueFd& receiving) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  sending.Reset(ends[0]);
  receiving.Reset(ends[1]);
  constexpr int kBytes = 32 * 1024;  // Linux doubles it (socket(7))
  // The program chooses whether its end blocks.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 || shutdown(ends[0], SHUT_RD) != 0 ||
      setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes)) != 0) {
    return StatusFromErrno(errno, "event socket");
  }
  return absl::OkStatus();
}

}  // namespace roci::control
