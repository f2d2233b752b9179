#include "control/manage/manage_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/loop/log.h"
#include "control/loop/no_memory.h"
#include "control/loop/socket.h"
#include "control/manage/manage_protocol.h"

namespace roci::control {
namespace {

// Program names may be invalid UTF-8.
std::string Text(const nlohmann::json& answer) {
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Refusal(const absl::Status& status) {
  return Text({{"ok", false}, {"error", std::string(status.message())}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManageServer>> ManageServer::Create(EventLoop& loop,
                                                                   const std::string& runtime_dir,
                                                                   Acceptor::Close close) {
  absl::StatusOr<UniqueFd> listener =
      ListenUnix(runtime_dir, kManageSocketName, SOCK_STREAM, SocketMode(/*is_public=*/false));
  if (!listener.ok()) return listener.status();
  std::unique_ptr<ManageServer> server(new ManageServer(loop, std::move(close)));
  ManageServer* const self = server.get();
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Create(
      loop, *std::move(listener), [self](UniqueFd socket) { self->Accept(std::move(socket)); },
      [](int) {
        Log(LogArea::kDaemon, LogLevel::kWarning,
            "management socket: connection refused: no free file descriptor");
      },
      server->close_);
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

ManageServer::~ManageServer() {
  for (auto& [id, connection] : connections_) {
    loop_.Forget(connection.watch);
    close_(std::move(connection.socket));
  }
}

void ManageServer::Accept(UniqueFd socket) {
  const absl::StatusOr<Peer> peer = PeerOf(socket.get());
  const bool allowed = peer.ok() && peer->has_rights_of_daemon;
  if (!allowed || connections_.size() >= kMaxConnections) {
    Log(LogArea::kDaemon, LogLevel::kWarning, "management connection refused");
    return close_(std::move(socket));
  }
  const uint64_t id = ++last_id_;
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_.Add(socket.get(), EPOLLIN, [this, id](uint32_t events) { Handle(id, events); });
  if (!watch.ok()) return close_(std::move(socket));
  connections_[id] = {.socket = std::move(socket),
                      .caller = peer->pid,
                      .watch = *watch,
                      .in = {},
                      .out = {},
                      .parts = {},
                      .answer = {}};
}

void ManageServer::Handle(uint64_t id, uint32_t events) {
  Connection& connection = connections_.at(id);
  bool open = (events & (EPOLLIN | EPOLLHUP)) == 0 || Receive(connection);
  if (open && (events & EPOLLOUT)) open = Flush(connection);
  // One answer at a time: requests wait until the previous answer has been sent.
  size_t end = 0;
  while (open && connection.out.empty() && !connection.parts &&
         (end = connection.in.find('\n')) != std::string::npos) {
    const std::string line = connection.in.substr(0, end);
    connection.in.erase(0, end + 1);
    const absl::StatusOr<Request> request = Parse(line, connection.caller);
    if (!request.ok()) {
      connection.out = Refusal(request.status()) + "\n";
    } else if (request->command->stream) {
      if (StartStream(id, *request)) return;
    } else if (StartParts(connection, *request)) {
      break;
    } else {
      connection.out = AnswerTo(*request) + "\n";
    }
    open = Flush(connection);
  }
  if (!open) return Close(id);
  constexpr uint32_t kNothing = 0;
  const uint32_t reads = connection.parts ? kNothing : uint32_t{EPOLLIN};
  loop_.Change(connection.watch, connection.out.empty() ? reads : uint32_t{EPOLLOUT});
}

bool ManageServer::StartParts(Connection& connection, const Request& request) {
  if (!request.command->parts) return false;
  std::optional<Parts> parts = request.command->parts(request.members);
  if (!parts.has_value()) return false;
  connection.answer = R"({"ok":true,"result":[)";
  connection.parts = *std::move(parts);
  return true;
}

roce::TimeNs ManageServer::NextTimeout() const {
  const bool has_parts = std::any_of(connections_.begin(), connections_.end(),
                                     [](const auto& each) { return each.second.parts != nullptr; });
  return has_parts ? 0 : roce::kNever;
}

// One part for each connection; the connection may end with it.
void ManageServer::HandleTimeout(roce::TimeNs) {
  std::vector<uint64_t> ids;
  for (const auto& [id, connection] : connections_) {
    if (connection.parts) ids.push_back(id);
  }
  for (const uint64_t id : ids) ContinueParts(id);
}

void ManageServer::ContinueParts(uint64_t id) {
  Connection& connection = connections_.at(id);
  bool has_more = false;
  const absl::Status status = OrRefuse([&] {
    has_more = connection.parts(connection.answer);
    return absl::OkStatus();
  });
  if (!status.ok()) return Close(id);
  if (has_more) return;
  connection.parts = nullptr;
  if (connection.answer.back() == ',') connection.answer.pop_back();
  connection.out = std::exchange(connection.answer, {}) + "]}\n";
  Handle(id, EPOLLOUT);
}

bool ManageServer::StartStream(uint64_t id, const Request& request) {
  Connection& connection = connections_.at(id);
  const absl::StatusOr<Stream> stream = request.command->stream(request.members);
  if (!stream.ok()) {
    connection.out = Refusal(stream.status()) + "\n";
    return false;
  }
  // All earlier answers have been sent, so the socket buffer has room for a line.
  constexpr std::string_view kGranted = "{\"ok\":true,\"result\":null}\n";
  if (send(connection.socket.get(), kGranted.data(), kGranted.size(),
           MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(kGranted.size())) {
    Close(id);
    return true;
  }
  UniqueFd socket = std::move(connection.socket);
  Close(id);
  (*stream)(std::move(socket));
  return true;
}

bool ManageServer::Receive(Connection& connection) {
  std::array<char, 4096> buffer;
  const ssize_t count = ReceiveStream(connection.socket.get(), buffer);
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
  Connection& connection = connections_.at(id);
  loop_.Forget(connection.watch);
  if (connection.socket.valid()) close_(std::move(connection.socket));
  connections_.erase(id);
}

absl::StatusOr<ManageServer::Request> ManageServer::Parse(const std::string& line,
                                                          pid_t caller) const {
  Request request{nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false), nullptr};
  if (!request.members.is_object()) {
    return absl::InvalidArgumentError("the request is not a JSON object");
  }
  request.members["caller"] = caller;
  const auto name = request.members.find("command");
  if (name == request.members.end() || !name->is_string()) {
    return absl::InvalidArgumentError("\"command\" is missing");
  }
  const auto command = commands_.find(name->get<std::string>());
  if (command == commands_.end()) {
    return absl::NotFoundError(absl::StrCat("unknown command \"", name->get<std::string>(), "\""));
  }
  request.command = &command->second;
  return request;
}

std::string ManageServer::AnswerTo(const Request& request) {
  const absl::StatusOr<nlohmann::json> result = request.command->answer(request.members);
  return result.ok() ? Text({{"ok", true}, {"result", *result}}) : Refusal(result.status());
}

std::string ManageServer::Answer(const std::string& line, pid_t caller) const {
  const absl::StatusOr<Request> request = Parse(line, caller);
  return request.ok() ? AnswerTo(*request) : Refusal(request.status());
}

}  // namespace roci::control
