#include "dataplane/base/priority_guard.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "dataplane/base/clock.h"

namespace roci::dataplane {

PriorityGuard::PriorityGuard() : wake_(eventfd(0, EFD_CLOEXEC)) {}

void PriorityGuard::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void PriorityGuard::Add(ThreadPriority& priority) {
  priority.SetGuard(&lowered_, wake_.get());
  const std::lock_guard lock(mutex_);
  guarded_.push_back({&priority});
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void PriorityGuard::Run() {
  pthread_setname_np(pthread_self(), "roci-priority");
  ThreadPriority own;
  own.Take(RealtimeUse::kAuto, kGuardPriority, Clock::Monotonic());
  while (!stop_) {
    if (lowered_ == 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    }
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
