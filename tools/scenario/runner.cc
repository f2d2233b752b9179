#include "tools/scenario/runner.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "roce/work.h"
#include "tools/scenario/process_set.h"
#include "tools/scenario/surroundings.h"
#include "tools/scenario/timeline.h"
#include "tools/scenario/verdicts.h"

namespace roci::tools {
namespace {

// Keeps the files of a failed run: the scenario, the verdicts, the log, the outputs and the
// captures.
void Keep(const Scenario& scenario, const std::string& folder, const Timeline& timeline,
          const Surroundings& surroundings, Outcome& outcome) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    outcome.verdicts.push_back(
        {false, "what is left can be kept", absl::StrCat(folder, ": ", error.message())});
    return;
  }
  surroundings.Keep(folder);
  for (size_t i = 0; i < timeline.programs().size(); ++i) {
    const Process* const process = timeline.programs()[i].process;
    if (process == nullptr) continue;
    std::ofstream(absl::StrCat(folder, "/", scenario.programs[i].name, ".out"))
        << process->output().text();
  }
  std::filesystem::copy_file(scenario.file, folder + "/scenario.toml",
                             std::filesystem::copy_options::overwrite_existing, error);
  outcome.kept = folder;
}

}  // namespace

std::optional<Outcome> RunScenario(const Scenario& scenario, const RunnerSettings& settings) {
  Outcome outcome;
  outcome.scenario = scenario.name;
  const uint64_t began_ns = NowNs();
  bool interrupted = false;
  {
    ProcessSet processes;
    Surroundings surroundings(scenario, settings, processes);
    Timeline timeline(scenario, surroundings, processes);
    absl::Status daemon = surroundings.Start();
    if (daemon.ok()) {
      timeline.Run(outcome.verdicts);
      CheckPrograms(scenario, timeline.programs(), outcome.verdicts);
      CheckRest(scenario, timeline, surroundings, processes, outcome.verdicts);
      daemon = surroundings.End();
    }
    outcome.verdicts.push_back({daemon.ok(), "the daemon runs until it is stopped",
                                daemon.ok() ? "exit status 0" : std::string(daemon.message())});
    processes.EndAll();
    interrupted = processes.interrupted();
    outcome.seconds = static_cast<double>(NowNs() - began_ns) / double{roce::kNsPerSecond};
    if (!interrupted && !outcome.Passed() && !settings.keep.empty()) {
      Keep(scenario, settings.keep, timeline, surroundings, outcome);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(settings.directory, ignored);
  if (interrupted) return std::nullopt;
  return outcome;
}

}  // namespace roci::tools
