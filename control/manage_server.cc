#include "control/manage_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "control/log.h"
#include "control/socket.h"

namespace roci::control {
namespace {

std::string Refusal(const std::string& text) {
  return nlohmann::json{{"ok", false}, {"error", text}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManageServer>> ManageServer::Create(EventLoop& loop,
                                                                   const std::string& runtime_dir) {
  absl::StatusOr<UniqueFd> listener = ListenUnix(runtime_dir, kSocketName, SOCK_STREAM, 0600);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<ManageServer> server(new ManageServer(loop, *std::move(listener)));
  const absl::Status status = server->Watch();
  if (!status.ok()) return status;
  return server;
}

ManageServer::~ManageServer() {
  loop_.Forget(watch_);
  for (const auto& [id, connection] : connections_) loop_.Forget(connection.watch);
}

absl::Status ManageServer::Watch() {
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_.Add(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  return absl::OkStatus();
}

void ManageServer::Accept() {
  UniqueFd socket = AcceptUnix(listener_.get());
  if (!socket.valid()) return;
  const absl::StatusOr<Peer> peer = PeerOf(socket.get());
  const bool allowed = peer.ok() && (peer->uid == geteuid() || peer->uid == 0);
  if (!allowed || connections_.size() >= kMaxConnections) {
    Log(LogArea::kDaemon, LogLevel::kWarning, "management connection refused");
    return;
  }
  const uint64_t id = ++last_id_;
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_.Add(socket.get(), EPOLLIN, [this, id](uint32_t events) { Handle(id, events); });
  if (!watch.ok()) return;
  connections_[id] = {.socket = std::move(socket), .watch = *watch, .in = {}, .out = {}};
}

void ManageServer::Handle(uint64_t id, uint32_t events) {
  Connection& connection = connections_.at(id);
  bool open = (events & (EPOLLIN | EPOLLHUP)) == 0 || Receive(connection);
  // One answer at a time: while an earlier one is not taken, nothing more is read.
  size_t end = 0;
  while (open && connection.out.empty() && (end = connection.in.find('\n')) != std::string::npos) {
    connection.out = Answer(connection.in.substr(0, end)) + "\n";
    connection.in.erase(0, end + 1);
    open = Flush(connection);
  }
  if (open && (events & EPOLLOUT)) open = Flush(connection);
  if (!open) return Close(id);
  loop_.Change(connection.watch, connection.out.empty() ? EPOLLIN : EPOLLOUT);
}

bool ManageServer::Receive(Connection& connection) {
  std::array<char, 4096> buffer;
  const ssize_t count = recv(connection.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  connection.in.append(buffer.data(), static_cast<size_t>(count));
  return connection.in.size() <= kMaxRequestBytes;
}

bool ManageServer::Flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t count = send(connection.socket.get(), connection.out.data(),
                               connection.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.out.erase(0, static_cast<size_t>(count));
  }
  return true;
}

void ManageServer::Close(uint64_t id) {
  loop_.Forget(connections_.at(id).watch);
  connections_.erase(id);
}

std::string ManageServer::Answer(const std::string& line) const {
  const nlohmann::json request = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return Refusal("the request is no JSON object");
  const auto command = request.find("command");
  if (command == request.end() || !command->is_string()) {
    return Refusal("the request names no command");
  }
  const auto handler = handlers_.find(command->get<std::string>());
  if (handler == handlers_.end()) {
    return Refusal(absl::StrCat("unknown command \"", command->get<std::string>(), "\""));
  }
  const absl::StatusOr<nlohmann::json> result = handler->second(request);
  if (!result.ok()) return Refusal(std::string(result.status().message()));
  // Names of programs need not be UTF-8.
  return nlohmann::json{{"ok", true}, {"result", *result}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace roci::control
