// Faults of the verbs calls of programs: the n-th call of a kind fails, or takes longer.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "dataplane/types/fault_occasions.h"
#include "roce/work.h"
#include "verbs_provider/abi/session_head.h"

namespace roci::control {

using CommandSet = std::bitset<ROCI_ABI_COMMAND_COUNT>;

// Names of verbs as in libibverbs, without "ibv_". Not those that the plugin executes alone.
std::vector<std::string_view> VerbNames();
// The requests of programs (roci_abi_command) that execute the verbs of this name, or of this
// pattern ("create_*"). None: there is no such verb.
CommandSet CommandsOf(const std::string& verb);

struct CallFaultSettings {
  // Of all faults together, too: programs wait 30 s for an answer.
  static constexpr uint64_t kMostDelayNs = 20 * roce::kNsPerSecond;

  std::string verb;  // as asked
  CommandSet commands;
  std::string program;  // empty: any
  dataplane::FaultOccasions when;
  int error = 0;          // errno; 0: the call is executed
  uint64_t delay_ns = 0;  // before it is executed or fails
};

struct CallFault {
  uint32_t id;
  CallFaultSettings settings;
  roce::TimeNs began;
  uint64_t matched = 0;  // calls for which all but nth, every, chance and times held
  uint64_t hit = 0;
};

// The faults of a device. Control thread only.
class CallFaults {
 public:
  static constexpr size_t kMost = 64;

  // ResourceExhausted: there are kMost.
  absl::Status Add(uint32_t id, const CallFaultSettings& settings, roce::TimeNs now);
  bool Remove(uint32_t id);
  void Clear() { faults_.clear(); }
  const std::vector<CallFault>& all() const { return faults_; }

  struct Fate {
    uint32_t fault = 0;  // the one that decided `error`
    int error = 0;
    uint64_t delay_ns = 0;  // of all faults that hit
  };
  // Applies the faults to a call, and counts it. `command`: roci_abi_command.
  Fate Apply(uint32_t command, std::string_view program, roce::TimeNs now);

 private:
  std::vector<CallFault> faults_;
};

}  // namespace roci::control
