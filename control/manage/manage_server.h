// The management socket <runtime dir>/manage.sock: one JSON request per line, one JSON answer per
// line. Only for root and the user that runs the daemon.
//
// Request: {"command": NAME, ...}. Answer: {"ok": true, "result": ...} or
// {"ok": false, "error": TEXT}. Handlers find the process ID of the client, 0 if it is not visible,
// in the request's member "caller".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/acceptor.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class ManageServer {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxRequestBytes = 64 * 1024;

  // Gets the whole request. The message of a failed status is the error text of the answer.
  using Handler = std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json& request)>;

  // `close` closes a socket (Acceptor::Close).
  static absl::StatusOr<std::unique_ptr<ManageServer>> Create(EventLoop& loop,
                                                              const std::string& runtime_dir,
                                                              Acceptor::Close close);
  ~ManageServer();
  ManageServer(const ManageServer&) = delete;
  ManageServer& operator=(const ManageServer&) = delete;

  void AddCommand(const std::string& name, Handler handler) {
    handlers_[name] = std::move(handler);
  }

  // For commands that answer with a stream: after a first line {"ok": true, ...}, the function that
  // the handler returned takes over the connection.
  using Stream = std::function<void(UniqueFd socket)>;
  using StreamHandler = std::function<absl::StatusOr<Stream>(const nlohmann::json& request)>;
  void AddStream(const std::string& name, StreamHandler handler) {
    streams_[name] = std::move(handler);
  }

  // One line in, one line out, both without the newline. `caller`: process ID of the client.
  std::string Answer(const std::string& line, pid_t caller = 0) const;

 private:
  struct Connection {
    UniqueFd socket;
    pid_t caller = 0;
    EventLoop::Watch watch = 0;
    std::string in;
    std::string out;  // not sent yet
  };

  ManageServer(EventLoop& loop, Acceptor::Close close) : loop_(loop), close_(std::move(close)) {}
  void Accept(UniqueFd socket);
  void Handle(uint64_t id, uint32_t events);
  // False: the connection is over.
  bool Receive(Connection& connection);
  bool Flush(Connection& connection);
  // True: the line requested a stream, which has taken over the connection.
  bool StartStream(uint64_t id, const std::string& line);
  void Close(uint64_t id);

  EventLoop& loop_;
  const Acceptor::Close close_;
  std::unique_ptr<Acceptor> acceptor_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, Handler> handlers_;
  std::map<std::string, StreamHandler> streams_;
};

}  // namespace roci::control
