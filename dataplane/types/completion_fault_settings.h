// An exact fault of completions: which successful ones it concerns, and the status that they get.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "dataplane/types/fault_occasions.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::dataplane {

struct CompletionFaultSettings {
  std::bitset<256> opcodes;     // roce::CompletionOpcode
  std::vector<roce::Qpn> qpns;  // empty: of any queue pair
  FaultOccasions when;
  roce::CompletionStatus status = roce::CompletionStatus::kGeneralError;  // not kSuccess
};

struct CompletionFaultState {
  uint32_t id = 0;
  CompletionFaultSettings settings;
  uint64_t matched = 0;
  uint64_t hit = 0;
};

}  // namespace roci::dataplane
