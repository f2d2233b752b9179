// Runs calls that a program can block on helper threads, so that the control thread never waits for
// a program.
//
// A call on another process's memory, and on many of its files in /proc, takes locks that the
// process can hold for any time, and may need pages that it serves itself (FUSE, userfaultfd(2), an
// exec that closes a file of a FUSE server that does not answer). Such calls have no time limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Control thread only.
class BlockingCalls {
 public:
  // Threads of one user. While all of them are blocked, the user's further calls wait.
  static constexpr size_t kThreadsOfUser = 16;

  // `loop` outlives this.
  static absl::StatusOr<std::unique_ptr<BlockingCalls>> Create(EventLoop& loop);
  // Drops results. Blocked threads stay until the process ends.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Runs `call` on a helper thread of `user`, then `done` on this thread, always after Run() has
  // returned. `call` must own everything that it uses; it is destroyed on this thread. Until it has
  // returned, `descriptors` are charged to the user, beyond the limit if necessary. A
  // std::bad_alloc of `call` is ignored. Returns a number for Forget(); 0: no thread can be
  // started.
  uint64_t Run(std::shared_ptr<User> user, uint64_t descriptors, std::function<void()> call,
               std::function<void()> done);
  // Threads of `user` now.
  size_t ThreadsOf(const User& user) const;
  // Drops `done`, and `call` unless it has started. 0 is ignored.
  void Forget(uint64_t number);

 private:
  struct Queue;  // shared with the threads
  // State of a call that has not returned.
  struct Pending {
    std::shared_ptr<User> user;
    QuotaShare descriptors;
    std::function<void()> done;
  };

  BlockingCalls(EventLoop& loop, std::shared_ptr<Queue> queue);
  void Deliver();

  EventLoop& loop_;
  const std::shared_ptr<Queue> queue_;
  EventLoop::Watch watch_ = 0;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Pending> pending_;
};

}  // namespace roci::control
