// A process that a scenario started, and its output.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "control/loop/unique_fd.h"
#include "tools/scenario/output_tail.h"

namespace roci::tools {

// Leads a process group of its own, and is killed with the process that started it. The caller
// reaps it (waitpid(2)) and says so by Ended().
class Process {
 public:
  // `command`: a path or a name in $PATH, and arguments. Standard input is empty; output and errors
  // are read together. `directory`: where it runs. Signals that are blocked here are not, there.
  absl::Status Start(const std::vector<std::string>& command, const std::string& directory);

  bool IsRunning() const { return pid_ > 0 && !end_.has_value(); }
  pid_t pid() const { return pid_; }
  // As of waitpid(2); nothing: it has not ended.
  std::optional<int> end() const { return end_; }
  uint64_t started_ns() const { return started_ns_; }
  uint64_t ended_ns() const { return ended_ns_; }

  // -1: nothing more can come.
  int output_fd() const { return output_.get(); }
  // Reads the output that is available now.
  void ReadOutput();
  const OutputTail& output() const { return tail_; }

  void Signal(int number) const;
  // Kills the process and its process group. Nothing if it has ended: its number may
  // be another's by now.
  void KillGroup() const;
  void Ended(int wait_status);

 private:
  pid_t pid_ = 0;
  std::optional<int> end_;
  uint64_t started_ns_ = 0;
  uint64_t ended_ns_ = 0;
  control::UniqueFd output_;
  OutputTail tail_;
};

// The monotonic clock.
uint64_t NowNs();

}  // namespace roci::tools
