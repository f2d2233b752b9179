// Counters of one user's programs (copier threads, parked frames, frames of early packets), and
// whether mapped memory of the user is copied by system calls, too.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::dataplane {

// AppCopies and EarlyFrames have the limits. Thread-safe.
struct CopyUse {
  std::atomic<uint32_t> threads{0};  // copier threads
  std::atomic<uint32_t> frames{0};   // parked frames
  std::atomic<uint32_t> early{0};    // frames of early packets

  // ---- Before others know this object
  uint32_t account = 0;     // Unix user
  bool is_trusted = false;  // its programs may block lcores

  // Whether an lcore has slept in an access to mapped memory of the user, for example because a
  // program punched holes into the file. Lcores then access the user's mapped memory by system
  // calls.
  bool has_blocked() const { return has_blocked_.load(std::memory_order_acquire); }
  void SetBlocked() {
    if (!has_blocked_.exchange(true)) changes_.fetch_add(1, std::memory_order_release);
  }
  // How many users have blocked an lcore.
  static uint32_t changes() { return changes_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> has_blocked_{false};
  static inline std::atomic<uint32_t> changes_{0};
};

}  // namespace roci::dataplane
