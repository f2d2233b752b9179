// Makes real-time threads again of lowered threads that get no processor.
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

// A lowered thread is an ordinary one, and ordinary threads may wait for seconds where many others
// yield or compute. This thread has a higher priority than those that it guards, looks every
// kPeriodNs while one of them is lowered, and sleeps otherwise.
class PriorityGuard {
 public:
  static constexpr uint64_t kPeriodNs = 2'000'000;

  PriorityGuard();
  ~PriorityGuard() { Stop(); }
  PriorityGuard(const PriorityGuard&) = delete;
  PriorityGuard& operator=(const PriorityGuard&) = delete;

  // Before `priority` is taken. It stays until Stop(). Control thread.
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

  std::atomic<uint32_t> lowered_{0};  // of the guarded threads
  Fd wake_;  // an eventfd: one of them was lowered, or this thread is to end
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards `guarded_`
  std::vector<Guarded> guarded_;
  std::thread thread_;
};

}  // namespace roci::dataplane
