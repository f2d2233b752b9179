#include "control/device/incoming_connections.h"

#include <sys/types.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/no_memory.h"

namespace roci::control {

IncomingConnections::IncomingConnections(AccountLookup& accounts, Open open, Refuse refuse)
    : accounts_(accounts), open_(std::move(open)), refuse_(std::move(refuse)) {}

void IncomingConnections::Take(UniqueFd socket) {
  std::shared_ptr<Waiting> waiting;
  const absl::Status status = OrRefuse([&] {
    waiting = std::make_shared<Waiting>();
    absl::StatusOr<Peer> peer = PeerOf(socket.get());
    if (!peer.ok()) return peer.status();
    const uid_t uid = peer->uid;
    const bool is_trusted = peer->has_rights_of_daemon;
    *waiting = {std::move(socket), *std::move(peer)};
    if (accounts_.Await(uid, is_trusted, [=, this] { OpenOrRefuse(*waiting); })) {
      return absl::OkStatus();
    }
    return StatusFromErrno(ENFILE, absl::StrCat("descriptors for a connection of user ", uid));
  });
  if (status.ok()) return;
  refuse_(socket.valid() ? std::move(socket) : std::move(waiting->socket), status);
}

void IncomingConnections::OpenOrRefuse(Waiting& waiting) {
  const absl::Status status = OrRefuse([&] { return open_(waiting.socket, waiting.peer); });
  if (!status.ok()) refuse_(std::move(waiting.socket), status);
}

}  // namespace roci::control
