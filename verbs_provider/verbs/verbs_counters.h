// The plugin's half of a counters object: which counter the program wants at which index.
#pragma once

#include <cstdint>

#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/spin_lock.h"

namespace roci::provider {

struct VerbsSession;

struct VerbsCounters {
  static constexpr uint32_t kMaxPoints = 64;
  struct Point {
    uint32_t index;  // where the program wants the value
    ibv_counter_description description;
  };

  ibv_counters counters;  // first
  VerbsSession* session;
  uint32_t handle;
  SpinLock lock;  // of the members below
  // Handle of the rule to which points were attached; 0: none, the points are for rules that are
  // created with a count action for the object.
  uint32_t dynamic_flow;
  uint32_t rule_count;  // rules with a count action for the object
  uint32_t point_count;
  Point points[kMaxPoints];
};

/// Called before a rule with a count action for the object is created. 0, or EOPNOTSUPP if the
/// object is attached to a rule. RemoveRule is called after the rule has been destroyed.
int AddRule(VerbsCounters* counters);
void RemoveRule(VerbsCounters* counters);

}  // namespace roci::provider
