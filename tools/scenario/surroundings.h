// The environment of a scenario: a daemon, its folders, and TCP ports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/scenario/process_set.h"
#include "tools/scenario/query.h"
#include "tools/scenario/runner.h"
#include "tools/scenario/tcp_ports.h"

namespace roci::tools {

class Surroundings {
 public:
  Surroundings(const Scenario& scenario, const RunnerSettings& settings, ProcessSet& processes)
      : scenario_(scenario), settings_(settings), processes_(processes) {}

  // Starts the daemon, and captures of its devices if failures are kept.
  absl::Status Start();
  const Process* daemon() const { return daemon_; }
  // The last lines of its log, with its exit status if it has ended.
  std::string DaemonText() const;
  // Ends captures and daemon. Returns the error of the daemon's end.
  absl::Status End();

  // The daemon's value now.
  absl::StatusOr<nlohmann::json> Ask(const Query& query) const;
  // The faults of a device.
  absl::StatusOr<nlohmann::json> AskFaults(const std::string& device) const;

  // Fills in placeholders.
  absl::StatusOr<std::string> Fill(const std::string& text);
  // A program as under `roci run`, and roci itself. `line`: words with placeholders.
  absl::StatusOr<Process*> StartProgram(const std::string& line);
  absl::StatusOr<Process*> StartRoci(const std::string& line);

  // Copies the daemon's log and the captures.
  void Keep(const std::string& folder) const;

 private:
  std::string RuntimeDir() const { return settings_.directory + "/r"; }
  std::string ScratchDir() const { return settings_.directory + "/d"; }
  absl::Status StartDaemon();
  absl::Status StartCaptures();
  absl::StatusOr<Process*> Launch(std::vector<std::string> command, const std::string& line);
  absl::StatusOr<std::string> ValueOfPlaceholder(const std::string& name);

  const Scenario& scenario_;
  const RunnerSettings& settings_;
  ProcessSet& processes_;
  Process* daemon_ = nullptr;
  std::map<std::string, Process*> captures_;  // by device
  std::map<int, TcpPort> ports_;
};

}  // namespace roci::tools
