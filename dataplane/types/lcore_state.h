// How an lcore runs, and its state.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "dataplane/base/counters.h"
#include "dataplane/base/thread_priority.h"
#include "dataplane/types/fairness.h"

namespace roci::dataplane {

struct LcoreOptions {
  // After so long without work the lcore sleeps until it is woken.
  uint32_t idle_sleep_us = 200;
  bool spin = false;     // never sleep, never yield
  bool profile = false;  // time the stages of the loop (costs about 100 cycles per loop)
  RealtimeUse realtime = RealtimeUse::kOff;
  Fairness fairness = Fairness::kQueuePair;
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
