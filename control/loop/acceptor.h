// Takes connections from a listening socket for as long as it lives, also while descriptors have
// run out: then they are refused, and the loop neither spins nor stops taking.
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
  // Gets a connection that cannot be kept: `socket` is closed afterwards.
  using Refuse = std::function<void(int socket)>;
  // Closes a socket that others may have sent descriptors to.
  using Close = std::function<void(UniqueFd socket)>;

  // `listener` is non-blocking and listens. `loop` outlives this and does not run after its end.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(EventLoop& loop, UniqueFd listener,
                                                          Take take, Refuse refuse, Close close);
  // Connections that nobody has taken yet are closed with the listener.
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
  UniqueFd spare_;  // closed to take a connection, and refuse it, when no other is left
  EventLoop::Watch watch_ = 0;
  roce::TimeNs resume_at_ = roce::kNever;  // paused until then
};

}  // namespace roci::control
