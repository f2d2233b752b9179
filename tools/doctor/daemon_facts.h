// Facts reported by the daemon, or by a rocid that this user would start.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace roci::tools {

enum class DaemonState : uint8_t {
  kAbsent,   // no daemon listens
  kSilent,   // a connection or a request is not answered
  kPrivate,  // it serves this user but answers requests of its own user and root only
  kAnswers,
};

struct DaemonFacts {
  std::string runtime_dir;
  DaemonState state = DaemonState::kAbsent;
  std::string problem;  // why it does not answer
  pid_t pid = 0;        // 0: not running, or not visible
  uid_t uid = 0;
  // The answer to kProbeCommand (control/manage/self_check.h), or what `rocid --probe` prints if no
  // daemon is running. Null: neither.
  nlohmann::json answer;

  bool is_running() const { return state != DaemonState::kAbsent; }
  // The errno with which rocid was refused a thing ("userfaultfd"); 0: it got it. Nothing: not
  // known.
  std::optional<int> ErrorOf(const char* thing) const;
  // A member of answer["running"]; null: not known, or not running.
  nlohmann::json Running(const char* member) const;
};

// `runtime_dir`: --runtime-dir, empty: not given.
DaemonFacts AskForFacts(const std::string& runtime_dir);

// The program rocid beside this one, else "rocid" (in $PATH).
std::string FindDaemonProgram();

}  // namespace roci::tools
