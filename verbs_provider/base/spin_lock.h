// A lock of four bytes for the data path: one atomic instruction when nobody else wants it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace roci::provider {

/// Not recursive. Not one at all where the app has promised that one thread only comes here.
/// Waiters spin a little and then yield: with more threads than processors the holder may be the
/// one that waits for a processor. In a forked child its state means nothing; the child never gets
/// as far (session.h, alive).
class SpinLock {
 public:
  void Lock() {
    if (!needed_) [[unlikely]] {
      return;
    }
    if (locked_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      LockSlowly();
    }
  }
  void Unlock() { locked_.store(false, std::memory_order_release); }
  /// Before anybody else knows of it.
  void BeForOneThread() { needed_ = false; }

 private:
  static constexpr int kSpinsBeforeYield = 64;

  void LockSlowly() {
    int spins = 0;
    do {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins < kSpinsBeforeYield) {
          __builtin_ia32_pause();
        } else {
          sched_yield();
        }
      }
    } while (locked_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> locked_{false};
  bool needed_ = true;
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.Lock(); }
  ~SpinGuard() { lock_.Unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace roci::provider
