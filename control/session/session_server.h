// Accepts sessions on <runtime dir>/rocid.sock, checks permission and limits, and owns them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device/incoming_connections.h"
#include "control/device/services.h"
#include "control/loop/acceptor.h"
#include "control/loop/hello_deadlines.h"
#include "control/session/session.h"

namespace roci::control {

// Control thread only.
class SessionServer {
 public:
  // `public_socket`: every user may connect (a daemon of root); false: only the daemon's user.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Create(Services& services,
                                                               const std::string& runtime_dir,
                                                               bool public_socket);
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;

  const std::map<uint32_t, std::unique_ptr<Session>>& sessions() const { return sessions_; }
  uint64_t refused() const { return refused_; }  // number of refused connections
  // Ends the device's sessions soon: for their programs, the device is dead.
  void EndAll(const Device& device);

  // For the loop's deadlines: connections that do not open a device in time are closed, and long
  // requests are continued.
  roce::TimeNs NextTimeout() const;
  void HandleTimeout(roce::TimeNs now);

 private:
  explicit SessionServer(Services& services);
  // Sends the reason to the program and logs it.
  void Refuse(int socket, const absl::Status& status);
  absl::StatusOr<Session::Admission> QuotasFor(const Peer& peer);
  absl::Status Open(UniqueFd& socket, Peer& peer);
  void Refuse(UniqueFd socket, const absl::Status& status);
  void End(uint32_t number);
  std::vector<ContextName> ContextsOf(uid_t uid) const;
  Session* Find(uint32_t number) const;
  void ShowPaths(const Device& device) const;
  bool HasLoggedReach(uint64_t process, uint32_t number) const;
  void ResumePaused(roce::TimeNs now);
  void ContinueOne();
  // Of session `number`, or of the one whose turn it is.
  void ReleaseSome(uint32_t number);
  void ReleaseSome();

  Services& services_;
  IncomingConnections incoming_;
  std::unique_ptr<Acceptor> acceptor_;
  HelloDeadlines hello_deadlines_;
  uint32_t last_number_ = 0;
  uint64_t refused_ = 0;
  std::map<uint32_t, std::unique_ptr<Session>> sessions_;
  // Whose programs have ended, and which release their objects in parts.
  std::map<uint32_t, std::unique_ptr<Session>> ending_;
  uint32_t last_released_ = 0;
  // Sessions with a long request, in the order of their turns.
  struct Continuing {
    uint32_t number;
    const User* user;  // to compare only
    bool operator==(const Continuing&) const = default;
  };
  std::vector<Continuing> continuing_;
  // Sessions that wait (services.resume_later), and the time of the next check.
  std::vector<uint32_t> paused_;
  roce::TimeNs next_resume_ = roce::kNever;
  roce::TimeNs next_release_ = 0;  // of what copies do not use any more
  // Whose turn it was in continuing_ and in ending_; to compare only.
  const User* last_continued_ = nullptr;
  const User* last_releasing_ = nullptr;
};

}  // namespace roci::control
