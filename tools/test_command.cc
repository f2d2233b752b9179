// roci test FILE...: runs scenarios
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tools/commands.h"
#include "tools/scenario/library.h"
#include "tools/scenario/parse_scenario.h"
#include "tools/scenario/reports.h"
#include "tools/scenario/scenario_set.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(A scenario is a TOML file: a configuration of rocid, programs to start, faults, events and other
roci commands on a timeline, and what is expected of all this. Each scenario runs with a daemon of its
own, which is not that of --runtime-dir, and with a time limit (30s unless the file says otherwise).
docs/scenarios.md explains the files.

FILE is a file, a folder with files (*.toml), or the name of an installed scenario, as --list prints
it; "all" stands for all of these.

Print a line for each expectation and a summary. --repeat tells flaky scenarios from others, and
prints failures only.

--keep has a folder for each failed scenario: rocid.log, the output of each program (NAME.out, its
last 256 KiB) and what each device sent and received (DEVICE.pcapng: 100000 frames, 256 bytes of each).

Exit status: 0 if all expectations hold; 1 if not, or if interrupted; 2 if a scenario file is wrong
(line, key and reason are printed, and nothing is run), or for wrong usage.

Examples:
  roci test --list
  roci test all
  roci test retry_exceeded port_flap_short
  roci test --repeat 100 --keep failures mine.toml
  roci test --junit report.xml scenarios/)";

struct TestOptions {
  std::vector<std::string> scenarios;
  bool list = false;
  bool tap = false;
  bool json = false;
  std::string junit;
  std::string keep;
  std::string rocid;
  std::string plugin;
  uint32_t jobs = 0;  // 0: the number of processors
  uint32_t repeat = 1;
};

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int Complain(const std::string& message, int exit_status) {
  std::fprintf(stderr, "roci: %s\n", message.c_str());
  return exit_status;
}

// Prints the faults of all files; false if there is one.
bool Load(const std::vector<std::string>& files, std::vector<Scenario>& out) {
  bool right = true;
  std::set<std::string> names;
  for (const std::string& file : files) {
    absl::StatusOr<Scenario> scenario = LoadScenario(file);
    if (!scenario.ok()) {
      std::fprintf(stderr, "%s\n", std::string(scenario.status().message()).c_str());
      right = false;
      continue;
    }
    if (!names.insert(scenario->name).second) {
      std::fprintf(stderr, "%s: another scenario has this name, too\n", file.c_str());
      right = false;
    }
    out.push_back(*std::move(scenario));
  }
  return right;
}

void List(const std::vector<Scenario>& scenarios) {
  size_t width = 0;
  for (const Scenario& scenario : scenarios) width = std::max(width, scenario.name.size());
  for (const Scenario& scenario : scenarios) {
    std::printf("%-*s  %s\n", static_cast<int>(width), scenario.name.c_str(),
                scenario.title.c_str());
  }
}

std::string AbsolutePath(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).string();
}

bool WriteFile(const std::string& file, const std::string& text) {
  std::FILE* const stream = std::fopen(file.c_str(), "we");
  if (stream == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  return std::fclose(stream) == 0 && written;
}

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int RunAll(const std::vector<Scenario>& scenarios, const TestOptions& options,
           const SetSettings& settings) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<Outcome> outcomes;
  uint64_t lines = 0;
  if (options.tap) Print("TAP version 13\n");
  const absl::StatusOr<uint64_t> interrupted =
      RunScenarios(scenarios, settings, [&](const Outcome& outcome) {
        if (options.tap) {
          Print(TapOf(outcome, options.repeat, lines + 1));
        } else if (!options.json) {
          Print(TextOf(outcome, options.repeat));
        }
        lines += outcome.verdicts.size();
        outcomes.push_back(outcome);
      });
  if (!interrupted.ok()) return Complain(std::string(interrupted.status().message()), kFailed);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (options.tap) {
    Print(TapEnd(lines, *interrupted));
  } else if (options.json) {
    Print(JsonOf(outcomes, *interrupted, took.count()).dump(2) + "\n");
  } else {
    Print(SummaryOf(outcomes, options.repeat, *interrupted, took.count()));
  }
  if (!options.junit.empty() && !WriteFile(options.junit, JunitOf(outcomes, options.repeat))) {
    return Complain("cannot write " + options.junit, kFailed);
  }
  return *interrupted == 0 && std::ranges::all_of(outcomes, &Outcome::Passed) ? 0 : kFailed;
}

int Test(const TestOptions& options) {
  std::vector<std::string> arguments = options.scenarios;
  if (arguments.empty() && options.list) arguments = {"all"};
  if (arguments.empty()) {
    return Complain("which scenario? `roci test --list` lists those that are installed",
                    kWrongUsage);
  }
  const absl::StatusOr<std::vector<std::string>> files = FindScenarios(arguments);
  if (!files.ok()) return Complain(std::string(files.status().message()), kWrongUsage);
  if (files->empty()) return Complain("there is no scenario", kWrongUsage);
  std::vector<Scenario> scenarios;
  if (!Load(*files, scenarios)) return kWrongUsage;
  if (options.list) {
    List(scenarios);
    return 0;
  }
  SetSettings settings;
  settings.runner.roci = OwnPath();
  settings.runner.rocid = options.rocid.empty() ? FindRocid() : AbsolutePath(options.rocid);
  if (settings.runner.rocid.empty()) {
    return Complain("cannot find rocid (name it with --rocid)", kWrongUsage);
  }
  settings.runner.plugin = AbsolutePath(options.plugin);
  settings.runner.keep = AbsolutePath(options.keep);
  settings.jobs =
      options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
  settings.repeat = options.repeat;
  return RunAll(scenarios, options, settings);
}

}  // namespace

void AddTestCommand(CLI::App& app, CommandContext& context) {
  constexpr int kMostJobs = 256;
  constexpr int kMostRuns = 1'000'000;
  auto options = std::make_shared<TestOptions>();
  CLI::App* command =
      app.add_subcommand("test", "Run scenarios: programs, faults and what is expected");
  command->footer(kManual);
  command->add_option("FILE", options->scenarios,
                      "Files, folders, names of installed scenarios, or all");
  command->add_flag("--list", options->list, "List scenarios (default: the installed ones)");
  command->add_option("-j,--jobs", options->jobs, "So many at a time (default: processors)")
      ->check(CLI::Range(1, kMostJobs));
  command->add_option("--repeat", options->repeat, "Number of runs of each")
      ->check(CLI::Range(1, kMostRuns));
  CLI::Option* tap = command->add_flag("--tap", options->tap, "Print TAP");
  command->add_flag("--json", options->json, "Print JSON")->excludes(tap);
  command->add_option("--junit", options->junit, "Write a JUnit report")->type_name("FILE");
  command->add_option("--keep", options->keep, "Keep logs, outputs and captures of failures here")
      ->type_name("DIR");
  command->add_option("--rocid", options->rocid, "The daemon to start (default: that beside roci)")
      ->type_name("FILE");
  command->add_option("--plugin", options->plugin, "Path of one of the plugins, as with roci run")
      ->type_name("FILE");
  command->callback([options, &context] { context.exit_status = Test(*options); });
}

}  // namespace roci::tools
