// The threads of an lcore's loop. A copy to or from a program's memory may block on that program (a
// page fault that it handles itself, a file system of its own). A watch thread continues the loop
// if the thread of the loop blocks for too long.
#include <poll.h>
#include <pthread.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/base/processor_time.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {
namespace {

// Longest time of a copy before the watch thread checks whether it blocks. A copy of a whole burst
// takes tens of microseconds; a preempted thread takes longer, but does not block.
constexpr uint64_t kLongestCopyNs = 300'000;
constexpr timespec kWatchPeriod{0, 400'000};
constexpr uint32_t kQuietPeriods = 25;
// Sleep between checks while another thread runs a function in the lcore's place.
constexpr timespec kCallerCheckPeriod{0, 10'000};
constexpr timespec kStopCheckPeriod{0, 1'000'000};
constexpr unsigned long kTimerSlackNs = 1000;

}  // namespace

bool Lcore::Copy(AppCopies& copies) {
  const std::shared_ptr<Shared> shared = shared_;
  copying_since_ns_.store(Clock::Monotonic(), std::memory_order_relaxed);
  copies_begun_.fetch_add(1);  // also a full fence before the flag is read
  if (watch_sleeps_.load(std::memory_order_relaxed)) [[unlikely]]
    WakeWatch();
  const uint32_t number = runner_.load(std::memory_order_relaxed);
  Lend();
  copies.Copy();
  if (TakeBackAfterCopy(number)) [[likely]] {
    copying_since_ns_.store(0, std::memory_order_relaxed);
    return true;
  }
  BecomeOrdinary();
  std::shared_ptr<AppCopies> own = copies.shared_from_this();
  own->ServeAsCopier(shared->stop, [&shared] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(shared->wake.get(), &one, sizeof(one));
  });
  // The last owner frees frames, and DPDK's memory ends soon after Stop(): either this thread sees
  // `stop`, or AwaitThreads() sees this thread.
  shared->releasing.fetch_add(1);
  if (shared->stop) own->Leak();
  own.reset();
  shared->releasing.fetch_sub(1);
  shared->copiers.fetch_sub(1);
  if (number == kFirstThread) shared->first_is_copier = false;
  return false;
}

bool Lcore::TakeBackAfterCopy(uint32_t number) {
  for (;;) {
    uint32_t holder = kNobody;
    if (holder_.compare_exchange_strong(holder, kItself, std::memory_order_acquire)) {
      if (runner_.load(std::memory_order_relaxed) == number) return true;
      // The thread that is the lcore now has lent the lcore out.
      holder_.store(kNobody, std::memory_order_release);
      return false;
    }
    if (runner_.load(std::memory_order_acquire) != number) return false;
    nanosleep(&kCallerCheckPeriod, nullptr);
  }
}

// Blocks SIGPIPE, because a program may close its end of an event socket.
void Lcore::PrepareThread() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Some ports send these signals when frames arrive, which ends a sleep.
  sigemptyset(&set);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  // Ports without interrupts are polled every 50 us; the default timer slack would double that.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
}

namespace {

// Gives the calling thread the CPU affinity of EAL's lcore.
void TakeAffinityOf(unsigned eal_lcore) {
  const rte_cpuset_t processors = rte_lcore_cpuset(eal_lcore);
  pthread_setaffinity_np(pthread_self(), sizeof(processors), &processors);
}

}  // namespace

// Gives up the thread's role as an lcore.
void Lcore::BecomeOrdinary() {
  RTE_PER_LCORE(_lcore_id) = LCORE_ID_ANY;
  TakeAffinityOf(rte_get_main_lcore());
  const sched_param none{};
  sched_setscheduler(0, SCHED_OTHER, &none);
}

bool Lcore::StartWatching() {
  const uint32_t number = last_thread_.fetch_add(1) + 1;
  shared_->threads.fetch_add(1);
  try {
    std::thread([this, number, shared = shared_] {
      if (Watch(number)) shared->threads.fetch_sub(1);
    }).detach();
    return true;
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  shared_->threads.fetch_sub(1);
  return false;
}

void Lcore::WakeWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(shared_->watch.get(), &one, sizeof(one));
}

void Lcore::SleepUntilCopy(uint64_t seen) {
  constexpr int kForEver = -1;
  uint64_t last_round = 0;
  watch_sleeps_.store(true);
  while (copies_begun_.load() == seen && !shared_->stop) {
    const uint64_t round = worker_->stats().loops.value();
    const bool is_idle =
        std::exchange(last_round, round) == round && worker_->memory_in_use() == nullptr;
    const int timeout_ms = !memory_watch_.has_users() ? kForEver
                           : is_idle                  ? MemoryWatch::kIdlePeriodMs
                                                      : MemoryWatch::kPeriodMs;
    pollfd wait{shared_->watch.get(), POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) > 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(shared_->watch.get(), &count, sizeof(count));
    }
    LookAtMemory();
  }
  watch_sleeps_.store(false);
}

// The lcore itself accesses the memory, or the control thread in its place.
void Lcore::LookAtMemory() {
  const CopyUse* const in_use = worker_->memory_in_use();
  const uint64_t round = worker_->stats().loops.value();
  memory_watch_.Look(Clock::Monotonic(), in_use, round, [&] {
    const uint32_t holder = holder_.load(std::memory_order_relaxed);
    return holder != kNobody && Sleeps(holder == kItself ? thread_id() : getpid()) &&
           worker_->memory_in_use() == in_use && worker_->stats().loops.value() == round;
  });
}

bool Lcore::IsBlocked(uint64_t since_ns) const {
  return since_ns != 0 && Clock::Monotonic() >= since_ns + kLongestCopyNs && Sleeps(thread_id());
}

bool Lcore::MayTakeOver() const {
  return shared_->copiers < kMostCopiers && holder_.load(std::memory_order_relaxed) == kNobody;
}

// The next watch thread is started before this one takes over the loop, so that the loop is always
// watched. While no thread can be started, the loop waits for the copy, and this thread tries again
// in each period. False: the thread that continued the loop has already reduced the count of
// threads.
bool Lcore::Watch(uint32_t number) {
  pthread_setname_np(pthread_self(), "roci-watch");
  ThreadPriority own;
  own.Take(realtime_, kGuardPriority, Clock::Monotonic());
  uint64_t seen = 0;
  uint32_t quiet = 0;
  while (!shared_->stop) {
    nanosleep(&kWatchPeriod, nullptr);
    const uint64_t begun = copies_begun_.load();
    const uint64_t since_ns = copying_since_ns_.load();
    quiet = begun == seen && since_ns == 0 ? quiet + 1 : 0;
    seen = begun;
    LookAtMemory();
    if (quiet == kQuietPeriods) SleepUntilCopy(seen);
    if (!IsBlocked(since_ns) || !MayTakeOver() || !StartWatching()) continue;
    if (!TakeOver(number, since_ns)) return true;  // the next watch thread goes on
    TakeAffinityOf(eal_lcore_);
    PrepareThread();
    return worker_->RunHere();
  }
  return true;
}

bool Lcore::TakeOver(uint32_t number, uint64_t since_ns) {
  if (shared_->copiers >= kMostCopiers) return false;
  uint32_t holder = kNobody;
  if (!holder_.compare_exchange_strong(holder, kCaller, std::memory_order_acquire)) return false;
  if (copying_since_ns_.load(std::memory_order_relaxed) != since_ns) {
    holder_.store(kNobody, std::memory_order_release);
    return false;
  }
  shared_->copiers.fetch_add(1);
  if (runner_.load(std::memory_order_relaxed) == kFirstThread) {
    shared_->first_is_copier = true;
  } else {
    shared_->threads.fetch_sub(1);
  }
  RTE_PER_LCORE(_lcore_id) = eal_lcore_;
  worker_->DetachCopy();
  copying_since_ns_.store(0, std::memory_order_relaxed);
  runner_.store(number, std::memory_order_release);
  holder_.store(kItself, std::memory_order_release);
  return true;
}

// Does not wait for threads in copies.
void Lcore::AwaitThreads() {
  WakeWatch();
  while (shared_->threads != 0 || shared_->releasing != 0) nanosleep(&kStopCheckPeriod, nullptr);
  while (rte_eal_get_lcore_state(eal_lcore_) == RUNNING && !shared_->first_is_copier) {
    nanosleep(&kStopCheckPeriod, nullptr);
  }
  if (!shared_->first_is_copier) rte_eal_wait_lcore(eal_lcore_);
}

}  // namespace roci::dataplane
