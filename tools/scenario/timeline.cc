#include "tools/scenario/timeline.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "roce/work.h"
#include "tools/scenario/words.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

using roce::kNsPerMs;
constexpr uint64_t kPollIntervalNs = 10 * kNsPerMs;
constexpr uint64_t kStopLimitNs = 5'000 * kNsPerMs;

bool HasPolled(const Trigger& trigger) {
  return std::ranges::any_of(trigger.when, [](const Condition& condition) {
    return std::holds_alternative<ValueHolds>(condition);
  });
}

std::string FoundText(const absl::StatusOr<Json>& value) {
  if (!value.ok()) return std::string(value.status().message());
  return value->is_null() ? "nothing is there" : value->dump();
}

// How a process ended, with the last line of its output.
std::string LastWords(const Process& process) {
  const std::string line = process.output().LastLine();
  return absl::StrCat(process.end().has_value() ? EndText(*process.end()) : "still running",
                      line.empty() ? "" : ", last line: ", line);
}

}  // namespace

Timeline::Timeline(const Scenario& scenario, Surroundings& surroundings, ProcessSet& processes)
    : scenario_(scenario),
      surroundings_(surroundings),
      processes_(processes),
      programs_(scenario.programs.size()),
      program_states_(scenario.programs.size()),
      ready_positions_(scenario.programs.size()),
      ready_since_ns_(scenario.programs.size()),
      step_states_(scenario.steps.size()) {
  const auto prepare = [](const Trigger& trigger, TriggerState& state) {
    state.held.resize(trigger.when.size());
    state.positions.resize(trigger.when.size());
  };
  for (size_t i = 0; i < programs_.size(); ++i) {
    prepare(scenario.programs[i].trigger, program_states_[i]);
  }
  for (size_t i = 0; i < step_states_.size(); ++i) {
    prepare(scenario.steps[i].trigger, step_states_[i]);
  }
}

void Timeline::Run(std::vector<Verdict>& verdicts) {
  verdicts_ = &verdicts;
  begun_ns_ = last_step_ns_ = NowNs();
  uint64_t deadline_ns = begun_ns_ + scenario_.time_limit_ns;
  while (!IsOver() && !gave_up_ && !processes_.interrupted()) {
    if (!surroundings_.daemon()->IsRunning()) break;  // End() says so
    if (NowNs() >= deadline_ns) {
      verdicts.push_back({false, absl::StrCat("ends within ", TimeText(scenario_.time_limit_ns)),
                          absl::StrCat("missing: ", Missing())});
      break;
    }
    wake_ns_ = deadline_ns;
    const bool had_begun = begin_.has_value();
    const bool changed = Advance();
    if (!had_begun && begin_.has_value()) deadline_ns = begun_ns_ + scenario_.time_limit_ns;
    if (!changed) processes_.Wait(wake_ns_);
  }
  StopPrograms();
  ended_ns_ = NowNs();
}

bool Timeline::Holds(const Condition& condition, uint64_t& position) {
  if (const auto* const ready = std::get_if<ProgramReady>(&condition)) {
    return programs_[ready->program].ready_ns.has_value();
  }
  if (const auto* const ended = std::get_if<ProgramEnded>(&condition)) {
    const Process* const process = programs_[ended->program].process;
    return process != nullptr && !process->IsRunning();
  }
  if (const auto* const prints = std::get_if<ProgramPrints>(&condition)) {
    const Process* const process = programs_[prints->program].process;
    return process != nullptr && process->output().Find(prints->pattern, position);
  }
  if (const auto* const done = std::get_if<StepDone>(&condition)) return done->step < step_;
  const auto& value = std::get<ValueHolds>(condition);
  if (!polls_now_) return false;
  const absl::StatusOr<Json> found = surroundings_.Ask(value.query);
  return found.ok() && value.comparison.Holds(*found);
}

bool Timeline::IsDue(const Trigger& trigger, TriggerState& state, uint64_t base_ns) {
  bool all = true;
  for (size_t i = 0; i < trigger.when.size(); ++i) {
    if (!state.held[i]) state.held[i] = Holds(trigger.when[i], state.positions[i]);
    all = all && state.held[i];
  }
  if (!all && HasPolled(trigger)) WakeAt(next_poll_ns_);
  const uint64_t now_ns = NowNs();
  if (trigger.at_ns.has_value()) {
    const uint64_t at_ns = begun_ns_ + *trigger.at_ns;
    if (now_ns < at_ns) {
      WakeAt(at_ns);
      return false;
    }
    base_ns = std::max(base_ns, at_ns);
  }
  if (!all) return false;
  if (!state.since_ns.has_value()) state.since_ns = trigger.when.empty() ? base_ns : now_ns;
  const uint64_t due_ns = *state.since_ns + trigger.wait_ns;
  if (now_ns < due_ns) WakeAt(due_ns);
  return now_ns >= due_ns;
}

std::string Timeline::WhyNever(const Condition& condition) const {
  const auto ended = [this](size_t program, bool has_held) {
    const ProgramRun& run = programs_[program];
    const std::string& name = scenario_.programs[program].name;
    if (!run.fault.empty()) return absl::StrCat(name, " was not started: ", run.fault);
    if (has_held || run.process == nullptr || run.process->IsRunning()) return std::string();
    return absl::StrCat(name, " ended before: ", LastWords(*run.process));
  };
  if (const auto* const ready = std::get_if<ProgramReady>(&condition)) {
    return ended(ready->program, programs_[ready->program].ready_ns.has_value());
  }
  if (const auto* const prints = std::get_if<ProgramPrints>(&condition)) {
    return ended(prints->program, false);
  }
  if (const auto* const end = std::get_if<ProgramEnded>(&condition)) {
    return ended(end->program, true);
  }
  return "";
}

std::string Timeline::WhyNever(const Trigger& trigger, const TriggerState& state) const {
  for (size_t i = 0; i < trigger.when.size(); ++i) {
    if (state.held[i]) continue;
    std::string why = WhyNever(trigger.when[i]);
    if (!why.empty()) return why;
  }
  return "";
}

std::string Timeline::WaitsFor(const Trigger& trigger, const TriggerState& state) const {
  std::vector<std::string> all;
  for (size_t i = 0; i < trigger.when.size(); ++i) {
    if (!state.held[i]) all.push_back(TextOf(scenario_, trigger.when[i]));
  }
  return absl::StrJoin(all, " and ");
}

bool Timeline::Advance() {
  polls_now_ = NowNs() >= next_poll_ns_;
  if (polls_now_) next_poll_ns_ = NowNs() + kPollIntervalNs;
  bool changed = AdvanceSteps();
  if (!begin_.has_value()) return changed;
  for (size_t i = 0; i < programs_.size(); ++i) changed |= AdvanceProgram(i);
  return changed;
}

bool Timeline::AdvanceProgram(size_t program) {
  const ScenarioProgram& about = scenario_.programs[program];
  ProgramRun& run = programs_[program];
  if (run.process == nullptr) {
    if (!run.fault.empty()) return false;
    if (!IsDue(about.trigger, program_states_[program], begun_ns_)) {
      run.fault = WhyNever(about.trigger, program_states_[program]);
      return !run.fault.empty();
    }
    const absl::StatusOr<Process*> process = surroundings_.StartProgram(about.command);
    if (process.ok()) run.process = *process;
    if (!process.ok()) run.fault = std::string(process.status().message());
    return true;
  }
  if (run.ready_ns.has_value()) return false;
  std::optional<uint64_t>& since_ns = ready_since_ns_[program];
  if (!since_ns.has_value()) {
    const Ready& ready = about.ready;
    if (ready.prints.has_value() &&
        !run.process->output().Find(*ready.prints, ready_positions_[program])) {
      return false;
    }
    if (!ready.listens.empty()) {
      if (run.process->IsRunning()) WakeAt(next_poll_ns_);
      const absl::StatusOr<std::string> port = surroundings_.Fill(ready.listens);
      uint32_t number = 0;
      if (!polls_now_ || !port.ok() || !absl::SimpleAtoi(*port, &number) ||
          !IsListening(static_cast<uint16_t>(number))) {
        return false;
      }
    }
    since_ns = NowNs();
  }
  const uint64_t due_ns = *since_ns + about.ready.after_ns;
  if (NowNs() < due_ns) {
    WakeAt(due_ns);
    return false;
  }
  run.ready_ns = NowNs();
  return true;
}

bool Timeline::AdvanceSteps() {
  if (!begin_.has_value() && step_ >= scenario_.FirstSteps() && roci_ == nullptr) {
    begin_ = begun_ns_ = last_step_ns_ = NowNs();
    return true;
  }
  if (roci_ != nullptr) {
    if (roci_->IsRunning()) return false;
    FinishRociLine();
    return true;
  }
  if (step_ == scenario_.steps.size()) return false;
  const Trigger& trigger = scenario_.steps[step_].trigger;
  TriggerState& state = step_states_[step_];
  if (!IsDue(trigger, state, last_step_ns_)) {
    const std::string why = WhyNever(trigger, state);
    if (why.empty()) return false;
    StepVerdict(false, absl::StrCat("is reached (", WaitsFor(trigger, state), ")"), why);
    gave_up_ = true;
    return true;
  }
  Begin(step_);
  return true;
}

void Timeline::Begin(size_t step) {
  const auto& action = scenario_.steps[step].action;
  if (const auto* const run = std::get_if<RunRoci>(&action)) {
    RunRociLine(*run);
  } else if (const auto* const send = std::get_if<SendSignal>(&action)) {
    Send(*send);
  } else {
    Check(std::get<CheckValue>(action));
  }
}

void Timeline::StepVerdict(bool holds, const std::string& what, const std::string& found) {
  verdicts_->push_back({holds, absl::StrCat(NameOfStep(scenario_, step_), " ", what), found});
  ++step_;
  last_step_ns_ = NowNs();
}

void Timeline::RunRociLine(const RunRoci& run) {
  const std::string line = run.hits.has_value() ? run.line + " --json" : run.line;
  const absl::StatusOr<Process*> process = surroundings_.StartRoci(line);
  if (!process.ok()) {
    StepVerdict(false, "runs roci " + run.line, std::string(process.status().message()));
    gave_up_ = true;
    return;
  }
  roci_ = *process;
}

void Timeline::FinishRociLine() {
  const auto& run = std::get<RunRoci>(scenario_.steps[step_].action);
  const bool succeeded = roci_->end() == 0;
  if (succeeded && run.hits.has_value()) NoteFault(run);
  StepVerdict(succeeded, "runs roci " + run.line,
              succeeded && run.hits.has_value() ? "exit status 0" : LastWords(*roci_));
  // A later state would be compared instead.
  gave_up_ = gave_up_ || !succeeded;
  roci_ = nullptr;
}

void Timeline::NoteFault(const RunRoci& run) {
  const Json faults = Json::parse(roci_->output().text(), nullptr, /*allow_exceptions=*/false);
  const absl::StatusOr<std::vector<std::string>> words = SplitWords(run.line);
  constexpr size_t kDeviceWord = 2;  // fault add DEV
  if (!faults.is_array() || faults.empty() || words->size() <= kDeviceWord) return;
  // The newest fault has the largest number.
  added_faults_.push_back({NameOfStep(scenario_, step_), (*words)[kDeviceWord],
                           faults.back().value("fault", uint64_t{0}), *run.hits});
}

void Timeline::Send(const SendSignal& send) {
  const Process* const process = programs_[send.program].process;
  const bool is_there = process != nullptr && process->IsRunning();
  if (is_there) process->Signal(send.signal);
  StepVerdict(is_there,
              absl::StrCat("sends ", SignalText(send.signal), " to ",
                           scenario_.programs[send.program].name),
              is_there             ? "sent"
              : process == nullptr ? "not started"
                                   : LastWords(*process));
}

void Timeline::Check(const CheckValue& check) {
  const absl::StatusOr<Json> value = surroundings_.Ask(check.query);
  StepVerdict(value.ok() && check.comparison.Holds(*value),
              absl::StrCat("finds ", TextOf(check.query), " ", check.comparison.text()),
              FoundText(value));
}

bool Timeline::IsOver() const {
  if (!begin_.has_value() || step_ < scenario_.steps.size()) return false;
  for (size_t i = 0; i < programs_.size(); ++i) {
    const ProgramRun& run = programs_[i];
    if (!run.fault.empty()) continue;
    if (run.process == nullptr) return false;
    const bool is_done = !run.process->IsRunning() ||
                         (scenario_.programs[i].stop_signal != 0 && run.ready_ns.has_value());
    if (!is_done) return false;
  }
  return true;
}

std::string Timeline::Missing() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < programs_.size(); ++i) {
    const ProgramRun& run = programs_[i];
    const ScenarioProgram& about = scenario_.programs[i];
    if (run.process == nullptr && run.fault.empty()) {
      const std::string waits = WaitsFor(about.trigger, program_states_[i]);
      all.push_back(absl::StrCat("the start of ", about.name,
                                 waits.empty() ? "" : ", which waits for: ", waits));
    } else if (run.process != nullptr && run.process->IsRunning() && about.stop_signal == 0) {
      all.push_back(absl::StrCat("the end of ", about.name,
                                 run.ready_ns.has_value() ? "" : ", which is not even ready"));
    }
  }
  if (step_ < scenario_.steps.size()) {
    const std::string waits = WaitsFor(scenario_.steps[step_].trigger, step_states_[step_]);
    all.push_back(absl::StrCat(NameOfStep(scenario_, step_),
                               waits.empty() ? "" : ", which waits for: ", waits));
  }
  return absl::StrJoin(all, "; ");
}

void Timeline::StopPrograms() {
  for (size_t i = 0; i < programs_.size(); ++i) {
    ProgramRun& run = programs_[i];
    if (run.process == nullptr || !run.process->IsRunning()) continue;
    const int signal = scenario_.programs[i].stop_signal;
    run.was_stopped = signal != 0;
    run.was_cut = signal == 0;
    run.process->Signal(signal != 0 ? signal : SIGKILL);
  }
  const uint64_t deadline_ns = NowNs() + kStopLimitNs;
  for (const ProgramRun& run : programs_) {
    if (run.process == nullptr) continue;
    while (run.process->IsRunning() && NowNs() < deadline_ns && !processes_.interrupted()) {
      processes_.Wait(deadline_ns);
    }
    run.process->KillGroup();
    while (run.process->IsRunning() && !processes_.interrupted()) {
      processes_.Wait(NowNs() + kStopLimitNs);
    }
  }
}

}  // namespace roci::tools
