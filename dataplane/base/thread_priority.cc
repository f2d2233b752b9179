#include "dataplane/base/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace roci::dataplane {
namespace {

// The shortest time slice that Linux accepts.
constexpr uint64_t kSliceNs = 100'000;
// Run time that a unit of sleep makes up for.
constexpr uint64_t kSleepWorth = 8;

// The kernel's struct sched_attr (sched_setattr(2)). glibc before 2.41 has neither the structure
// nor the function, and the kernel's header conflicts with glibc's.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedAttributes) == 48);

constexpr uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK

bool Set(pid_t thread, const SchedAttributes& attributes) {
  return syscall(SYS_sched_setattr, thread, &attributes, 0) == 0;
}

bool SetRealtime(pid_t thread, int priority) {
  return Set(
      thread,
      {.policy = SCHED_FIFO, .flags = kResetOnFork, .priority = static_cast<uint32_t>(priority)});
}

// Kernels before 6.12 ignore the slice.
bool SetOrdinary(pid_t thread, int nice, uint64_t flags) {
  return Set(thread, {.flags = flags, .nice = nice, .runtime_ns = kSliceNs});
}

// Whether the process was started with a scheduling policy (chrt), which the daemon then keeps.
bool HasPolicy() {
  const int policy = sched_getscheduler(0);
  return policy >= 0 && (policy & ~SCHED_RESET_ON_FORK) != SCHED_OTHER;
}

// Sets and returns the highest priority up to `wanted` that the process may have; 0: none.
int TakeRealtime(pid_t thread, int wanted) {
  while (wanted > 0 && !SetRealtime(thread, wanted)) --wanted;
  return wanted;
}

}  // namespace

void ThreadPriority::Take(RealtimeUse use, int wanted, uint64_t now_ns) {
  if (HasPolicy()) return;
  thread_ = gettid();
  nice_ = getpriority(PRIO_PROCESS, 0);
  SetOrdinary(thread_, nice_, 0);
  if (use == RealtimeUse::kOff) return;
  priority_ = TakeRealtime(thread_, wanted);
  if (priority_ == 0) return;
  changed_ns_ = now_ns;
  next_change_ns_ = now_ns + kRaisedNs;
}

void ThreadPriority::MoveHere(uint64_t now_ns) {
  if (realtime_priority() == 0) return;
  thread_ = gettid();
  // MakeRealtime expects a lowered thread.
  if (!lowered_.exchange(true) && lowered_threads_ != nullptr) lowered_threads_->fetch_add(1);
  MakeRealtime(now_ns);
}

void ThreadPriority::MakeRealtime(uint64_t now_ns) {
  const bool done = SetRealtime(thread_, priority_);
  lowered_ = false;
  raised_by_guard_ = false;
  is_bounded_ = false;
  if (lowered_threads_ != nullptr) lowered_threads_->fetch_sub(1);
  changed_ns_ = now_ns;
  next_change_ns_ = now_ns + kRaisedNs;
  if (!done) LosePriority();
}

// Notifies the guard first, because the thread may lose its processor in the system call.
void ThreadPriority::MakeOrdinary(uint64_t now_ns) {
  if (realtime_priority() == 0) return;
  changed_ns_ = now_ns;
  next_change_ns_ = now_ns + kLoweredNs;
  raised_by_guard_ = false;
  if (!lowered_.exchange(true) && lowered_threads_ != nullptr &&
      lowered_threads_->fetch_add(1) == 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }
  if (SetOrdinary(thread_, nice_, kResetOnFork)) return;
  // The nice value was changed from outside, and the process may not change it back.
  nice_ = getpriority(PRIO_PROCESS, static_cast<id_t>(thread_));
  if (!SetOrdinary(thread_, nice_, kResetOnFork)) LosePriority();
}

// The process may not have real-time priority any more.
void ThreadPriority::LosePriority() {
  priority_ = 0;
  next_change_ns_ = kNever;
}

void ThreadPriority::RaiseLowered() {
  if (!lowered_.load(std::memory_order_acquire)) return;
  // Above other lcores: one of them may wait for this thread without yielding.
  if (SetRealtime(thread_, kGuardPriority) || SetRealtime(thread_, priority_)) {
    raised_by_guard_ = true;
  }
}

bool ThreadPriority::Adjust(uint64_t now_ns, bool is_busy) {
  if (now_ns < next_change_ns_) return false;
  if (is_lowered() && is_busy) {
    Raise(now_ns);
    return false;
  }
  // Idle threads too: the guard may have just raised this one.
  MakeOrdinary(now_ns);
  is_bounded_ = true;
  return realtime_priority() != 0;
}

void ThreadPriority::NoteSleep(uint64_t begin_ns, uint64_t end_ns) {
  if (realtime_priority() == 0 || is_lowered() || end_ns <= begin_ns) return;
  changed_ns_ = std::min(end_ns, changed_ns_ + kSleepWorth * (end_ns - begin_ns));
  next_change_ns_ = changed_ns_ + kRaisedNs;
}

}  // namespace roci::dataplane
