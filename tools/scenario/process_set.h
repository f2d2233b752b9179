// The processes of one scenario, and the one place where their runner waits.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"
#include "tools/scenario/process.h"

namespace roci::tools {

// Needs a process with one thread that has no other children. Blocks SIGCHLD and the
// termination signals (SIGINT, SIGTERM, SIGHUP).
class ProcessSet {
 public:
  ProcessSet();
  ProcessSet(const ProcessSet&) = delete;
  ProcessSet& operator=(const ProcessSet&) = delete;
  ~ProcessSet() { EndAll(); }

  // The process stays valid as long as the set.
  absl::StatusOr<Process*> Start(const std::vector<std::string>& command,
                                 const std::string& directory);

  // Waits until a process prints or ends, a termination signal arrives, or `until_ns` has come;
  // reads the output and reaps ended processes.
  void Wait(uint64_t until_ns);
  // Whether a termination signal has arrived.
  bool interrupted() const { return interrupted_; }

  // Kills all processes and their descendants, and waits until they have ended.
  void EndAll();

 private:
  void TakeSignals();
  void Reap();

  control::UniqueFd signals_;
  std::deque<Process> processes_;
  bool interrupted_ = false;
};

}  // namespace roci::tools
