#include "tools/scenario/scenario.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "roce/work.h"

namespace roci::tools {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

bool ProgramEnd::Holds(int wait_status, bool was_stopped) const {
  const bool exited = WIFEXITED(wait_status);
  const int status = exited ? WEXITSTATUS(wait_status) : -1;
  switch (kind) {
    case Kind::kStatuses:
      return exited && std::ranges::find(statuses, status) != statuses.end();
    case Kind::kFailure:
      return exited && status != 0;
    case Kind::kSignal:
      return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == signal;
    case Kind::kAny:
      return true;
    case Kind::kStopped:
      return was_stopped;
  }
  return false;
}

std::string ProgramEnd::Text() const {
  switch (kind) {
    case Kind::kStatuses:
      return absl::StrCat("exits with ", absl::StrJoin(statuses, " or "));
    case Kind::kFailure:
      return "exits with a status other than 0";
    case Kind::kSignal:
      return absl::StrCat("is ended by ", SignalText(signal));
    case Kind::kAny:
      return "ends";
    case Kind::kStopped:
      return "runs until it is stopped";
  }
  return "";
}

size_t Scenario::FirstSteps() const {
  const auto first =
      std::ranges::find_if(steps, [](const Step& step) { return !step.trigger.IsImmediate(); });
  return static_cast<size_t>(first - steps.begin());
}

std::string NameOfStep(const Scenario& scenario, size_t step) {
  const std::string& name = scenario.steps[step].name;
  return absl::StrCat("step ", step + 1, name.empty() ? "" : absl::StrCat(" (", name, ")"));
}

std::string TextOf(const Scenario& scenario, const Condition& condition) {
  const auto name = [&](size_t program) { return scenario.programs[program].name; };
  return std::visit(
      Overloaded{
          [&](const ProgramReady& c) { return absl::StrCat(name(c.program), " is ready"); },
          [&](const ProgramEnded& c) { return absl::StrCat(name(c.program), " has ended"); },
          [&](const ProgramPrints& c) {
            return absl::StrCat(name(c.program), " prints /", c.pattern.text(), "/");
          },
          [&](const ValueHolds& c) {
            return absl::StrCat(TextOf(c.query), " ", c.comparison.text());
          },
          [&](const StepDone& c) { return absl::StrCat(NameOfStep(scenario, c.step), " is done"); },
      },
      condition);
}

std::string TextOf(const Expectation& expectation) {
  return std::visit(
      Overloaded{
          [](const CheckValue& e) {
            return absl::StrCat(TextOf(e.query), " ", e.comparison.text());
          },
          [](const FaultCount& e) {
            return absl::StrCat("fault ", e.fault, " of ", e.device, ": ", e.counter, " ",
                                e.comparison.text());
          },
          [](const FileBytes& e) {
            return absl::StrCat("bytes of ", e.file, " ", e.comparison.text());
          },
          [](const WholeTime& e) { return absl::StrCat("lasts ", e.comparison.text()); },
          [](const LogPrints& e) {
            return absl::StrCat("the log ", e.wanted ? "has" : "has no", " /", e.pattern.text(),
                                "/");
          },
      },
      expectation);
}

int FindSignal(const std::string& name) {
  const std::string wanted(
      absl::StripPrefix(absl::AsciiStrToUpper(name), absl::string_view("SIG")));
  for (int number = 1; number < NSIG; ++number) {
    const char* const each = sigabbrev_np(number);
    if (each != nullptr && wanted == each) return number;
  }
  return 0;
}

std::string SignalText(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string EndText(int wait_status) {
  if (WIFSIGNALED(wait_status)) return absl::StrCat("ended by ", SignalText(WTERMSIG(wait_status)));
  return absl::StrCat("exit status ", WEXITSTATUS(wait_status));
}

std::string TimeText(uint64_t time_ns) {
  constexpr double kMsPerS = 1e3;
  const double time_ms = static_cast<double>(time_ns) / double{roce::kNsPerMs};
  return time_ms < kMsPerS ? absl::StrFormat("%.3gms", time_ms)
                           : absl::StrFormat("%.2fs", time_ms / kMsPerS);
}

}  // namespace roci::tools
