// The plugin's half of a counters object: which of its values is which.
#pragma once

#include <cstdint>

#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/spin_lock.h"

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
  // The rule to which points were attached; 0: none, they are for rules that name the object when
  // they are made.
  uint32_t dynamic_flow;
  uint32_t users;  // such rules
  uint32_t point_count;
  Point points[kMaxPoints];
};

/// A rule that names the object is about to be made: 0, or EOPNOTSUPP where its points are those of
/// another rule. RemoveUser when it is gone.
int AddUser(FlowCounters* counters);
void RemoveUser(FlowCounters* counters);

}  // namespace roci::provider
