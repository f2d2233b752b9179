// Wakes an lcore that sleeps until it gets work.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace roci::dataplane {

// One per lcore.
class LcoreWake {
 public:
  // A write to `event_fd`, which the lcore owns, ends the lcore's sleep. Control thread, before the
  // lcore starts.
  void Use(int event_fd) { event_fd_ = event_fd; }

  // Any thread. The caller has stored the new work and executed a full fence.
  void WakeIfSleeping() {
    if (sleeping_.load(std::memory_order_relaxed)) [[unlikely]]
      Wake();
  }
  void Wake() {
    const uint64_t one = 1;
    // Fails only if the counter is full; the lcore then wakes anyway.
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
  }
  bool is_sleeping() const { return sleeping_.load(std::memory_order_relaxed); }
  // On the lcore. After SetSleeping(true), the lcore executes a full fence and looks for work once
  // more.
  void SetSleeping(bool sleeping) { sleeping_.store(sleeping, std::memory_order_relaxed); }

 private:
  std::atomic<bool> sleeping_{false};
  int event_fd_ = -1;
};

}  // namespace roci::dataplane
