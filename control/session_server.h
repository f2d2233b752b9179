// Accepts sessions on <runtime dir>/rocid.sock and owns them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "control/services.h"
#include "control/session.h"

namespace roci::control {

// Control thread only.
class SessionServer {
 public:
  // `public_socket`: every user may connect (a daemon of root), else only the daemon's own.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Create(Services& services,
                                                               const std::string& runtime_dir,
                                                               bool public_socket);
  ~SessionServer();
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;

  const std::map<uint32_t, std::unique_ptr<Session>>& sessions() const { return sessions_; }
  uint64_t refused() const { return refused_; }  // connections turned away

 private:
  SessionServer(Services& services, UniqueFd listener)
      : services_(services), listener_(std::move(listener)) {}
  absl::Status Watch();
  void Accept();
  void DropOne();
  absl::Status Open(UniqueFd socket);

  Services& services_;
  UniqueFd listener_;
  UniqueFd spare_;  // closed to take a connection, and drop it, when descriptors have run out
  EventLoop::Watch watch_ = 0;
  uint32_t last_number_ = 0;
  uint64_t refused_ = 0;
  std::map<uint32_t, std::unique_ptr<Session>> sessions_;
};

}  // namespace roci::control
