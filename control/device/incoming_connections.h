// New connections of programs: the account of the peer's user is found before a connection is
// opened.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "control/device/account_lookup.h"
#include "control/loop/socket.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class IncomingConnections {
 public:
  // Opens the connection. Takes the socket only if it returns OK.
  using Open = std::function<absl::Status(UniqueFd& socket, Peer& peer)>;
  // Tells the peer the reason and closes the socket.
  using Refuse = std::function<void(UniqueFd socket, const absl::Status& status)>;

  // `accounts` outlives this object, and this object every connection that waits there.
  IncomingConnections(AccountLookup& accounts, Open open, Refuse refuse);

  // Calls `open` when the account is known, now or after return; `refuse` instead, or after it, if
  // something fails, also for lack of memory.
  void Take(UniqueFd socket);

 private:
  struct Waiting {
    UniqueFd socket;
    Peer peer;
  };
  void OpenOrRefuse(Waiting& waiting);

  AccountLookup& accounts_;
  const Open open_;
  const Refuse refuse_;
};

}  // namespace roci::control
