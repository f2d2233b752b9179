#include "verbs_provider/give_way.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "verbs_provider/abi/yield_judge.h"

namespace roci::provider {
namespace {

constexpr uint64_t kSleepEveryNs = 50'000;

thread_local abi::YieldJudge judge;
thread_local uint64_t last_sleep_ns = 0;

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

bool TryYield() {
  const uint64_t begin = MonotonicNs();
  if (!judge.Allows(begin)) return false;
  sched_yield();
  judge.Took(begin, MonotonicNs());
  return true;
}

void GiveWay() {
  if (TryYield()) return;
  // Once for all the queues that a program looks at in turn.
  const uint64_t now = MonotonicNs();
  if (now - last_sleep_ns < kSleepEveryNs) return;
  // Not nanosleep(), at which the thread could be cancelled.
  const timespec shortest = {0, 1};
  syscall(SYS_nanosleep, &shortest, nullptr);
  last_sleep_ns = MonotonicNs();
}

}  // namespace roci::provider
