#include "dataplane/priority_guard.h"

#include <pthread.h>
#include <time.h>

#include <utility>

#include "dataplane/clock.h"

namespace roci::dataplane {

void PriorityGuard::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  lowered_.fetch_add(1);
  lowered_.notify_one();
  thread_.join();
}

void PriorityGuard::Add(ThreadPriority& priority) {
  priority.SetGuard(&lowered_);
  const std::lock_guard lock(mutex_);
  guarded_.push_back({&priority});
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void PriorityGuard::Run() {
  pthread_setname_np(pthread_self(), "roci-priority");
  ThreadPriority own;
  own.Take(RealtimeUse::kAuto, kGuardPriority, Clock::Monotonic());
  while (!stop_) {
    lowered_.wait(0);
    const timespec period{0, kPeriodNs};
    nanosleep(&period, nullptr);
    Look();
  }
}

void PriorityGuard::Look() {
  const std::lock_guard lock(mutex_);
  for (Guarded& guarded : guarded_) {
    ThreadPriority& priority = *guarded.priority;
    const uint64_t rounds = priority.rounds();
    const bool stands = std::exchange(guarded.rounds, rounds) == rounds;
    if (stands && priority.is_lowered()) priority.RaiseLowered();
  }
}

}  // namespace roci::dataplane
