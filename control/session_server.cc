#include "control/session_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "control/log.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr int kAcceptBudget = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Create(Services& services,
                                                                     const std::string& runtime_dir,
                                                                     bool public_socket) {
  absl::StatusOr<UniqueFd> listener =
      ListenUnix(runtime_dir, abi::kSocketName, SOCK_SEQPACKET, public_socket ? 0666 : 0600);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<SessionServer> server(new SessionServer(services, *std::move(listener)));
  const absl::Status status = server->Watch();
  if (!status.ok()) return status;
  return server;
}

SessionServer::~SessionServer() { services_.loop.Forget(watch_); }

absl::Status SessionServer::Watch() {
  const absl::StatusOr<EventLoop::Watch> watch =
      services_.loop.Add(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return absl::OkStatus();
}

void SessionServer::Accept() {
  for (int i = 0; i < kAcceptBudget; ++i) {
    UniqueFd socket = AcceptUnix(listener_.get());
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE) DropOne();
      return;
    }
    const absl::Status status = Open(std::move(socket));
    if (status.ok()) continue;
    ++refused_;
    Log(LogArea::kSession, LogLevel::kWarning, "connection refused: %s",
        std::string(status.message()).c_str());
  }
}

// A connection that cannot be taken would wake the loop for ever.
void SessionServer::DropOne() {
  spare_.Reset();
  AcceptUnix(listener_.get());
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ++refused_;
  Log(LogArea::kSession, LogLevel::kError, "connection refused: no file descriptor is left");
}

absl::Status SessionServer::Open(UniqueFd socket) {
  if (sessions_.size() >= services_.config.limits.max_sessions) {
    return absl::ResourceExhaustedError("limits.max_sessions is reached");
  }
  absl::StatusOr<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) return peer.status();
  while (++last_number_ == 0 || sessions_.contains(last_number_)) {
  }
  const uint32_t number = last_number_;
  auto end = [this, number] { services_.loop.Post([this, number] { sessions_.erase(number); }); };
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(services_, std::move(socket), *std::move(peer), number, end);
  if (!session.ok()) return session.status();
  sessions_.emplace(number, *std::move(session));
  return absl::OkStatus();
}

}  // namespace roci::control
