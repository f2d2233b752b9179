// Which user of this machine has the other end of a TCP connection, as Linux's sock_diag(7) says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "control/loop/unique_fd.h"

namespace roci::control {

// Not thread-safe.
class TcpPeers {
 public:
  // Without sock_diag nothing is ever known.
  TcpPeers();

  struct Owner {
    uid_t uid;
    // No process has the other end any more; `uid` has no meaning.
    bool is_closed;
  };
  // Nothing: the peer is another machine, or a process of another network namespace.
  std::optional<Owner> OwnerOf(int connection);

 private:
  UniqueFd socket_;
  uint32_t serial_ = 0;
};

}  // namespace roci::control
