#include "verbs_provider/rings/give_way.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "verbs_provider/abi/yield_judge.h"
#include "verbs_provider/base/clock.h"
#include "verbs_provider/rings/lcore_progress.h"
#include "verbs_provider/rings/turns.h"

namespace roci::provider {
namespace {

// Threads of this process that yield or sleep in GiveWay(). One that is cancelled meanwhile stays
// counted; the others then sleep where they could yield.
std::atomic<uint32_t> waiting{0};

// A handler of a signal that comes meanwhile may fork: then the child's count does not include its
// thread any more.
std::atomic<uint32_t> forks{0};

class Waiting {
 public:
  Waiting() : forks_(forks.load(std::memory_order_relaxed)) {
    waiting.fetch_add(1, std::memory_order_relaxed);
  }
  ~Waiting() {
    if (forks_ == forks.load(std::memory_order_relaxed)) {
      waiting.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const uint32_t forks_;
};

uint32_t CountProcessors() {
  cpu_set_t processors;
  // Fails where there are more than 1024.
  if (sched_getaffinity(0, sizeof(processors), &processors) != 0) return CPU_SETSIZE;
  return static_cast<uint32_t>(CPU_COUNT(&processors));
}

// When the plugin was loaded. A program that may use more later, sleeps where it could yield.
const uint32_t processors = CountProcessors();

thread_local abi::YieldJudge control_yields;
thread_local Turns turns;
// Of a few lcores: a thread may wait for several contexts in turn.
constexpr size_t kWatched = 8;
thread_local LcoreProgress progress[kWatched];

uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

void Yield(uint64_t now_ns) {
  const Waiting counted;
  sched_yield();
  turns.Yielded(now_ns, MonotonicNs());
}

// Not nanosleep(), at which the thread could be cancelled. `ns` < 1 s. Returns the time afterwards.
uint64_t SleepFor(uint64_t ns) {
  const Waiting counted;
  const timespec time = {0, static_cast<long>(ns)};
  syscall(SYS_nanosleep, &time, nullptr);
  return MonotonicNs();
}

}  // namespace

bool TryYield() {
  const uint64_t begin = MonotonicNs();
  if (!control_yields.Allows(begin)) return false;
  sched_yield();
  control_yields.Took(begin, MonotonicNs());
  return true;
}

void BeginWaiting() {
  const uint64_t now = MonotonicNs();
  for (LcoreProgress& each : progress) each.Begin(now);
}

void GiveWay(const Doorbells& bells) {
  const uint64_t now = MonotonicNs();
  const uint32_t others = waiting.load(std::memory_order_relaxed);
  LcoreProgress& of_page = progress[bells.number() % kWatched];
  if (bells.is_sleeping()) {
    of_page.Begin(now);
  } else if (const uint64_t ns = of_page.Look(bells.rounds(), now); ns != 0) {
    turns.SleptOtherwise(SleepFor(std::max(ns, turns.SleepNs(others, processors, now))));
    return;
  }
  if (turns.MayYield(others, processors, now)) {
    Yield(now);
  } else if (const uint64_t ns = turns.SleepNs(others, processors, now); ns != 0) {
    turns.Slept(now, SleepFor(ns), ns);
  }
}

void ForgetOtherThreads() {
  forks.fetch_add(1, std::memory_order_relaxed);
  waiting.store(0, std::memory_order_relaxed);
}

}  // namespace roci::provider
