// A small lock for the data path: one atomic instruction without contention.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace roci::provider {

/// Not recursive. A waiter spins for a short time and then yields, because the holder may be
/// waiting for a processor. In a forked child the state is undefined; callers check
/// VerbsSession::alive() first.
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
  /// Makes Lock() do nothing: the program has promised that only one thread uses the object. Called
  /// before other threads can reach the lock.
  void DisableLocking() { needed_ = false; }

 private:
  static constexpr int kSpinsBeforeYield = 64;

  // Lets the other hardware thread of the core run for a moment.
  static void Pause() {
#if defined(__aarch64__)
    asm volatile("isb" : : : "memory");
#else
    __builtin_ia32_pause();
#endif
  }

  void LockSlowly() {
    int spins = 0;
    do {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins < kSpinsBeforeYield) {
          Pause();
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
