// Accepts connections from a listening socket. When the process has no free descriptor, connections
// are refused instead of keeping the loop busy.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class Acceptor {
 public:
  using Take = std::function<void(UniqueFd socket)>;
  // Called for a connection that cannot be kept, before `socket` is closed.
  using Refuse = std::function<void(int socket)>;
  // Closes a socket in which foreign descriptors may wait (control/loop/fd_broker.h).
  using Close = std::function<void(UniqueFd socket)>;

  // `listener` is a non-blocking listening socket. `loop` outlives this object and does not run
  // after its destruction.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(EventLoop& loop, UniqueFd listener,
                                                          Take take, Refuse refuse, Close close);
  // Connections that were not accepted yet are closed with the listener.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  Acceptor(EventLoop& loop, UniqueFd listener, Take take, Refuse refuse, Close close);
  absl::Status Watch();
  void Accept();
  void RefuseOne();
  void Resume();

  EventLoop& loop_;
  UniqueFd listener_;
  const Take take_;
  const Refuse refuse_;
  const Close close_;
  UniqueFd spare_;  // closed to free a descriptor for accepting and refusing a connection
  EventLoop::Watch watch_ = 0;
  roce::TimeNs resume_at_ = roce::kNever;  // paused until then
};

}  // namespace roci::control
