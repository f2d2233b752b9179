// Faults of the calls of programs, of libibverbs and of librdmacm: the n-th call of a kind fails,
// takes longer, or answers with smaller limits.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "dataplane/types/fault_occasions.h"
#include "dataplane/types/program_match.h"
#include "roce/work.h"
#include "verbs_provider/abi/session_head.h"

namespace roci::control {

// The commands of programs: those of sessions by their number (roci_abi_command), then those of
// librdmacm (RDMA_USER_CM_CMD_*).
inline constexpr uint32_t kMostCmCommands = 32;
constexpr uint32_t OfConnectionManager(uint32_t command) {
  return ROCI_ABI_COMMAND_COUNT + command;
}
using CommandSet = std::bitset<OfConnectionManager(kMostCmCommands)>;

// Names of calls as in libibverbs, without "ibv_", and as in librdmacm ("rdma_connect"). Not those
// that the plugin executes alone.
std::vector<std::string_view> VerbNames();
// The commands that execute the calls of this name, or of this pattern ("create_*"; one that begins
// with "rdma_" for librdmacm's). None: there is no such call.
CommandSet CommandsOf(const std::string& verb);
bool HasCmCommands(const CommandSet& commands);

// A limit that ibv_query_device() or ibv_query_port() answers with.
struct AnswerLimit {
  std::string_view name;  // as in struct ibv_device_attr or ibv_port_attr
  uint32_t command;       // ROCI_ABI_QUERY_DEVICE or ROCI_ABI_QUERY_PORT
  uint16_t offset;        // in the response
  uint8_t bytes;
};
std::span<const AnswerLimit> AnswerLimits();

struct LoweredLimit {
  const AnswerLimit* limit;
  uint64_t most;
};
// `response`: the answer to `command`. A limit that is lower already stays.
void LowerLimits(std::span<const LoweredLimit> limits, uint32_t command,
                 std::span<std::byte> response);

struct CallFaultSettings {
  // Of all faults together, too: programs wait 30 s for an answer.
  static constexpr uint64_t kMostDelayNs = 20 * roce::kNsPerSecond;

  std::string verb;  // as asked
  CommandSet commands;
  dataplane::ProgramMatch program;
  dataplane::FaultOccasions when;
  int error = 0;                     // errno; 0: the call is executed
  uint64_t delay_ns = 0;             // before it is executed or fails
  std::vector<LoweredLimit> limits;  // of its answer
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
    std::vector<LoweredLimit> limits;
  };
  // Applies the faults to a call of `program`, and counts it. `command`: as in CommandSet.
  Fate Apply(uint32_t command, std::string_view program, roce::TimeNs now, uint32_t pid = 0);

 private:
  std::vector<CallFault> faults_;
};

}  // namespace roci::control
