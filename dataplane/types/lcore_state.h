// How an lcore runs, and its state.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "dataplane/base/counters.h"
#include "dataplane/base/thread_priority.h"
#include "dataplane/types/fairness.h"

namespace roci::dataplane {

// The time of the lcores is that of a discrete simulation: it stands still while there is anything
// to do, then jumps to the next event, and waits for what programs post.
struct VirtualTime {
  // It is 1970-01-01T00:00:01 at the start.
  static constexpr uint64_t kBeginNs = 1'000'000'000;
  bool is_used = false;
  // A program that does not poll is waited for until nothing of it has moved for so long.
  uint32_t quiet_ms = 100;
};

struct LcoreOptions {
  // After so long without work the lcore sleeps until it is woken.
  uint32_t idle_sleep_us = 200;
  bool spin = false;     // never sleep, never yield
  bool profile = false;  // time the stages of the loop (costs about 100 cycles per loop)
  RealtimeUse realtime = RealtimeUse::kOff;
  Fairness fairness = Fairness::kQueuePair;
  VirtualTime virtual_time;  // with one lcore, no ports, and without `spin` and `realtime`
};

struct LcoreThread {
  pid_t id = 0;               // 0: it does not run yet
  int realtime_priority = 0;  // 0: ordinary priority
};

struct LcoreState {
  LcoreThread thread;
  uint32_t contexts = 0;  // verbs contexts
  LcoreSnapshot counters;
};

}  // namespace roci::dataplane
