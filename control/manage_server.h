// The management socket <runtime dir>/manage.sock: one JSON request per line, one JSON answer per
// line. For the user that runs the daemon, and root.
//
// Request: {"command": NAME, ...}. Answer: {"ok": true, "result": ...} or
// {"ok": false, "error": TEXT}.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/event_loop.h"
#include "control/unique_fd.h"

namespace roci::control {

// Control thread only.
class ManageServer {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxRequestBytes = 64 * 1024;
  // The name below the runtime directory.
  static constexpr char kSocketName[] = "manage.sock";

  // Gets the whole request; its status message is the answer's error text.
  using Handler = std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json& request)>;

  static absl::StatusOr<std::unique_ptr<ManageServer>> Create(EventLoop& loop,
                                                              const std::string& runtime_dir);
  ~ManageServer();
  ManageServer(const ManageServer&) = delete;
  ManageServer& operator=(const ManageServer&) = delete;

  void AddCommand(const std::string& name, Handler handler) {
    handlers_[name] = std::move(handler);
  }

  // One line in, one line out, both without the newline.
  std::string Answer(const std::string& line) const;

 private:
  struct Connection {
    UniqueFd socket;
    EventLoop::Watch watch = 0;
    std::string in;
    std::string out;  // not sent yet
  };

  ManageServer(EventLoop& loop, UniqueFd listener) : loop_(loop), listener_(std::move(listener)) {}
  absl::Status Watch();
  void Accept();
  void Handle(uint64_t id, uint32_t events);
  // False: the connection is over.
  bool Receive(Connection& connection);
  bool Flush(Connection& connection);
  void Close(uint64_t id);

  EventLoop& loop_;
  UniqueFd listener_;
  EventLoop::Watch watch_ = 0;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, Handler> handlers_;
};

}  // namespace roci::control
