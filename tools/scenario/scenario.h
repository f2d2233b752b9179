// A scenario as parsed. parse_scenario.h reads it, runner.h runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/scenario/comparison.h"
#include "tools/scenario/pattern.h"
#include "tools/scenario/query.h"

namespace roci::tools {

// A condition that a program or step waits for. Programs and steps are positions in the scenario.
struct ProgramReady {
  size_t program;
};
struct ProgramEnded {
  size_t program;
};
struct ProgramPrints {
  size_t program;
  Pattern pattern;
};
struct ValueHolds {
  Query query;
  Comparison comparison;
};
struct StepDone {
  size_t step;
};
using Condition = std::variant<ProgramReady, ProgramEnded, ProgramPrints, ValueHolds, StepDone>;

// When a program or step begins: all of this must hold.
struct Trigger {
  std::optional<uint64_t> at_ns;  // after the first programs have begun
  std::vector<Condition> when;
  uint64_t wait_ns = 0;  // after that

  bool IsImmediate() const { return !at_ns.has_value() && when.empty() && wait_ns == 0; }
};

// When a program is ready; without any, as soon as it runs.
struct Ready {
  std::string listens;  // on this TCP port; with placeholders
  std::optional<Pattern> prints;
  uint64_t after_ns = 0;  // since it was started, or since the above
};

// How a program is to end.
struct ProgramEnd {
  enum class Kind { kStatuses, kFailure, kSignal, kAny, kStopped };
  Kind kind = Kind::kStatuses;
  std::vector<int> statuses = {0};
  int signal = 0;

  bool Holds(int wait_status, bool was_stopped) const;
  std::string Text() const;
};

struct ScenarioProgram {
  std::string name;
  std::string command;  // with placeholders
  Trigger trigger;
  Ready ready;
  int stop_signal = 0;  // sent when all else has ended; 0: it must end itself
  ProgramEnd end;
  std::vector<Comparison> lasts;  // nanoseconds
  std::vector<Pattern> prints;
  std::vector<Pattern> prints_not;
};

struct RunRoci {
  std::string line;                // with placeholders, without "roci"
  std::optional<Comparison> hits;  // of the fault that it adds
};
struct SendSignal {
  size_t program;
  int signal;
};
struct CheckValue {
  Query query;
  Comparison comparison;
};

struct Step {
  std::string name;  // may be empty
  Trigger trigger;
  std::variant<RunRoci, SendSignal, CheckValue> action;
};

// The expectations at the end, besides the exit statuses of the programs.
struct FaultCount {
  std::string device;
  uint32_t fault;
  std::string counter;
  Comparison comparison;
};
struct FileBytes {
  std::string file;  // with placeholders
  Comparison comparison;
};
struct WholeTime {
  Comparison comparison;  // nanoseconds since the first programs began
};
struct LogPrints {
  Pattern pattern;
  bool wanted;
};
using Expectation = std::variant<CheckValue, FaultCount, FileBytes, WholeTime, LogPrints>;

struct Scenario {
  static constexpr uint64_t kMostTimeLimitNs = 3'600'000'000'000;
  static constexpr size_t kMostPrograms = 32;
  static constexpr size_t kMostSteps = 256;
  static constexpr size_t kMostExpectations = 256;
  static constexpr size_t kMostFileBytes = size_t{1} << 20;

  std::string name;  // of the file, without folder and ".toml"
  std::string file;
  std::string title;
  std::string text;
  uint64_t time_limit_ns = 30'000'000'000;
  std::string rocid_config;  // empty: rocid's default
  std::vector<ScenarioProgram> programs;
  std::vector<Step> steps;
  std::vector<Expectation> expectations;

  // Steps at the beginning that wait for nothing: they run before the programs.
  size_t FirstSteps() const;
};

// "client", "step 3", "step 3 (cut)"
std::string NameOfStep(const Scenario& scenario, size_t step);
std::string TextOf(const Scenario& scenario, const Condition& condition);
std::string TextOf(const Expectation& expectation);

// "SIGKILL", "KILL": its number; 0: there is none.
int FindSignal(const std::string& name);
std::string SignalText(int signal);
// "exit status 1", "ended by SIGKILL"
std::string EndText(int wait_status);
// "1.5s", "20ms"
std::string TimeText(uint64_t time_ns);

}  // namespace roci::tools
