// An exact fault of completions: which successful ones it concerns, and what becomes of them.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

#include "dataplane/types/fault_occasions.h"
#include "dataplane/types/impairment_settings.h"
#include "dataplane/types/queue_pair_match.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::dataplane {

struct CompletionFaultSettings {
  std::bitset<256> opcodes;     // roce::CompletionOpcode
  std::vector<roce::Qpn> qpns;  // empty: of any queue pair
  QueuePairMatch queue_pair;
  FaultOccasions when;
  // kSuccess: stays.
  roce::CompletionStatus status = roce::CompletionStatus::kSuccess;
  std::optional<uint32_t> vendor_error;  // with an error
  // Delay until the entry, and later entries of its completion queue, become visible.
  uint64_t delay_ns = 0;
  // The completion event that it would raise is lost. Concerns only completions that raise one.
  bool loses_event = false;
  // It does not fit: its completion queue overflows.
  bool overflows = false;
};

struct CompletionFaultState {
  uint32_t id = 0;
  CompletionFaultSettings settings;
  uint64_t matched = 0;
  uint64_t hit = 0;
};

}  // namespace roci::dataplane
