// Watches the kernel's network devices in the daemon's network namespace (rtnetlink(7)), so that
// ports on them follow link changes at once.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class LinkWatch {
 public:
  // `changed` is called after one or several changes of any device. `loop` outlives the watch.
  static absl::StatusOr<std::unique_ptr<LinkWatch>> Create(EventLoop& loop,
                                                           std::function<void()> changed);
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

 private:
  LinkWatch(EventLoop& loop, UniqueFd socket, std::function<void()> changed)
      : loop_(loop), socket_(std::move(socket)), changed_(std::move(changed)) {}
  void Drain();

  EventLoop& loop_;
  UniqueFd socket_;
  std::function<void()> changed_;
  EventLoop::Watch watch_ = 0;
};

}  // namespace roci::control
