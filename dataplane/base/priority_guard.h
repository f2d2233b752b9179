// Raises lowered threads that get no processor back to real-time priority.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dataplane/base/shared_memory.h"
#include "dataplane/base/thread_priority.h"

namespace roci::dataplane {

// A lowered thread has ordinary priority, and may wait for seconds while many other ordinary
// threads yield or compute. The guard is a thread of a higher priority than the guarded ones. It
// checks them every kPeriodNs while at least one is lowered, and sleeps otherwise.
class PriorityGuard {
 public:
  static constexpr uint64_t kPeriodNs = 2'000'000;

  PriorityGuard();
  ~PriorityGuard() { Stop(); }
  PriorityGuard(const PriorityGuard&) = delete;
  PriorityGuard& operator=(const PriorityGuard&) = delete;

  // Guards `priority` until Stop(). Called before ThreadPriority::Take. Control thread.
  void Add(ThreadPriority& priority);
  // Ends the guard's thread. Control thread.
  void Stop();

 private:
  struct Guarded {
    ThreadPriority* priority;
    uint64_t rounds = 0;
  };

  void Run();
  void Look();

  std::atomic<uint32_t> lowered_{0};  // number of guarded threads that are lowered
  Fd wake_;                           // an eventfd: a thread was lowered, or the guard must stop
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards `guarded_`
  std::vector<Guarded> guarded_;
  std::thread thread_;
};

}  // namespace roci::dataplane
