// The plugin's half of a counters object: which of its values is which.
#pragma once

#include <cstdint>

#include "verbs_provider/provider_api.h"
#include "verbs_provider/spin_lock.h"

namespace roci::provider {

struct Session;

struct FlowCounters {
  static constexpr uint32_t kMaxPoints = 64;
  struct Point {
    uint32_t index;  // where the app wants the value
    ibv_counter_description description;
  };

  ibv_counters counters;  // first
  Session* session;
  uint32_t handle;
  SpinLock lock;  // of what follows
  uint32_t point_count;
  Point points[kMaxPoints];
};

}  // namespace roci::provider
