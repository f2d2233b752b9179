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
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "control/loop/acceptor.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"
#include "roce/work.h"

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
    commands_[name].answer = std::move(handler);
  }

  // For commands whose result is a long array. The function that the handler returns appends some
  // elements to `out`, each with a comma behind it, and returns false after the last one; a loop
  // iteration lies between two calls. Absent: the handler of AddCommand answers.
  using Parts = std::function<bool(std::string& out)>;
  using PartsHandler = std::function<std::optional<Parts>(const nlohmann::json& request)>;
  void AddInParts(const std::string& name, PartsHandler handler) {
    commands_[name].parts = std::move(handler);
  }
  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

  // For commands that answer with a stream: after a first line {"ok": true, ...}, the function that
  // the handler returned takes over the connection.
  using Stream = std::function<void(UniqueFd socket)>;
  using StreamHandler = std::function<absl::StatusOr<Stream>(const nlohmann::json& request)>;
  void AddStream(const std::string& name, StreamHandler handler) {
    commands_[name].stream = std::move(handler);
  }

  // One line in, one line out, both without the newline. `caller`: process ID of the client.
  std::string Answer(const std::string& line, pid_t caller = 0) const;

 private:
  // Handlers of a command: `stream` alone, or `answer` with optional `parts`. Null: absent.
  struct Command {
    Handler answer;
    PartsHandler parts;
    StreamHandler stream;
  };
  struct Request {
    nlohmann::json members;
    const Command* command;
  };
  struct Connection {
    UniqueFd socket;
    pid_t caller = 0;
    EventLoop::Watch watch = 0;
    std::string in;
    std::string out;  // not sent yet
    Parts parts;      // of the answer that is being made; else null
    std::string answer;
  };

  ManageServer(EventLoop& loop, Acceptor::Close close) : loop_(loop), close_(std::move(close)) {}
  void Accept(UniqueFd socket);
  void Handle(uint64_t id, uint32_t events);
  // False: the connection is over.
  bool Receive(Connection& connection);
  bool Flush(Connection& connection);
  // The message of a failed status is the error text of the answer.
  absl::StatusOr<Request> Parse(const std::string& line, pid_t caller) const;
  static std::string AnswerTo(const Request& request);
  // False: the request is answered at once.
  static bool StartParts(Connection& connection, const Request& request);
  void ContinueParts(uint64_t id);
  // True: a stream has taken over the connection, or it is closed. False: refused, with an answer.
  bool StartStream(uint64_t id, const Request& request);
  void Close(uint64_t id);

  EventLoop& loop_;
  const Acceptor::Close close_;
  std::unique_ptr<Acceptor> acceptor_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, Command> commands_;
};

}  // namespace roci::control
