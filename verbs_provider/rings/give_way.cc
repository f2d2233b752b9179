#include "verbs_provider/rings/give_way.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "verbs_provider/abi/yield_judge.h"
#include "verbs_provider/rings/lcore_progress.h"

namespace roci::provider {
namespace {

constexpr uint64_t kSleepEveryNs = 50'000;

thread_local abi::YieldJudge judge;
// Of a few lcores: a thread may wait for several contexts in turn.
constexpr size_t kWatched = 8;
thread_local LcoreProgress progress[kWatched];
thread_local uint64_t last_sleep_ns = 0;

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Not nanosleep(), at which the thread could be cancelled. `ns` < 1 s.
void SleepFor(uint64_t ns) {
  const timespec time = {0, static_cast<long>(ns)};
  syscall(SYS_nanosleep, &time, nullptr);
  last_sleep_ns = MonotonicNs();
}

}  // namespace

bool TryYield() {
  const uint64_t begin = MonotonicNs();
  if (!judge.Allows(begin)) return false;
  sched_yield();
  judge.Took(begin, MonotonicNs());
  return true;
}

void BeginWaiting() {
  const uint64_t now = MonotonicNs();
  for (LcoreProgress& each : progress) each.Begin(now);
}

void GiveWay(const Doorbells& bells) {
  const uint64_t now = MonotonicNs();
  LcoreProgress& of_page = progress[bells.number() % kWatched];
  if (bells.is_sleeping()) {
    of_page.Begin(now);
  } else if (const uint64_t ns = of_page.Look(bells.rounds(), now); ns != 0) {
    SleepFor(ns);
    return;
  }
  if (TryYield()) return;
  // Once for all the queues that a program looks at in turn.
  if (now - last_sleep_ns >= kSleepEveryNs) SleepFor(1);
}

}  // namespace roci::provider
