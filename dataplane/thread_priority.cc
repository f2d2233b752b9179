#include "dataplane/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace roci::dataplane {
namespace {

// The shortest that Linux takes.
constexpr uint64_t kSliceNs = 100'000;
// A sleep makes up for running so many times as long.
constexpr uint64_t kSleepWorth = 8;

// The kernel's struct sched_attr (sched_setattr(2)). Its header and that of glibc define the same
// structures, and glibc before 2.41 has neither this one nor a function for it.
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

// Of the calling thread.
bool Set(const SchedAttributes& attributes) {
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

bool SetRealtime(int priority) {
  return Set(
      {.policy = SCHED_FIFO, .flags = kResetOnFork, .priority = static_cast<uint32_t>(priority)});
}

// Kernels before 6.12 ignore the slice.
bool SetOrdinary(int nice, uint64_t flags) {
  return Set({.flags = flags, .nice = nice, .runtime_ns = kSliceNs});
}

// Somebody has chosen a policy for the whole process (chrt): it rules.
bool HasPolicy() {
  const int policy = sched_getscheduler(0);
  return policy >= 0 && (policy & ~SCHED_RESET_ON_FORK) != SCHED_OTHER;
}

// The highest priority up to `wanted` that the process may have.
int TakeRealtime(int wanted) {
  while (wanted > 0 && !SetRealtime(wanted)) --wanted;
  return wanted;
}

}  // namespace

void ThreadPriority::Take(RealtimeUse use, int wanted, uint64_t now_ns) {
  if (HasPolicy()) return;
  nice_ = getpriority(PRIO_PROCESS, 0);
  SetOrdinary(nice_, 0);
  if (use == RealtimeUse::kOff) return;
  priority_ = TakeRealtime(wanted);
  if (priority_ != 0) Change(true, now_ns);
}

void ThreadPriority::Change(bool raise, uint64_t now_ns) {
  if (!(raise ? SetRealtime(priority_) : SetOrdinary(nice_, kResetOnFork))) {
    // The right to the priority was taken away.
    priority_ = 0;
    next_change_ns_ = kNever;
    return;
  }
  raised_ = raise;
  changed_ns_ = now_ns;
  next_change_ns_ = now_ns + (raise ? kRaisedNs : kLoweredNs);
}

bool ThreadPriority::Adjust(uint64_t now_ns, bool is_busy) {
  if (now_ns < next_change_ns_) return false;
  if (raised_) {
    Lower(now_ns);
    return true;
  }
  if (is_busy) {
    Raise(now_ns);
  } else {
    next_change_ns_ = now_ns + kLoweredNs;
  }
  return false;
}

void ThreadPriority::NoteSleep(uint64_t begin_ns, uint64_t end_ns) {
  if (!raised_ || end_ns <= begin_ns) return;
  changed_ns_ = std::min(end_ns, changed_ns_ + kSleepWorth * (end_ns - begin_ns));
  next_change_ns_ = changed_ns_ + kRaisedNs;
}

}  // namespace roci::dataplane
