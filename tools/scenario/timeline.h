// The course of a scenario: starts its programs, runs its steps, and waits until all is over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/scenario/outcome.h"
#include "tools/scenario/process_set.h"
#include "tools/scenario/scenario.h"
#include "tools/scenario/surroundings.h"

namespace roci::tools {

// How a program ended.
struct ProgramRun {
  const Process* process = nullptr;  // null: it was not started
  std::optional<uint64_t> ready_ns;
  bool was_stopped = false;  // by its `stop` signal
  bool was_cut = false;      // it ran when the scenario had to end
  std::string fault;         // why it was not started
};

// A fault that a step has added, and how often it must hit.
struct AddedFault {
  std::string step;
  std::string device;
  uint64_t number;
  Comparison hits;
};

class Timeline {
 public:
  Timeline(const Scenario& scenario, Surroundings& surroundings, ProcessSet& processes);

  // Until every program has ended that is not stopped, and every step is done; then stops the
  // others. Ends early if that cannot happen any more, at the time limit, if the daemon ends, or if
  // interrupted. Adds a verdict for each step, and for each such end.
  void Run(std::vector<Verdict>& verdicts);

  const std::vector<ProgramRun>& programs() const { return programs_; }
  const std::vector<AddedFault>& added_faults() const { return added_faults_; }
  // From the first programs' start to the end of all.
  uint64_t lasted_ns() const { return ended_ns_ - begun_ns_; }

 private:
  // The state of a trigger. A condition that was true once stays true.
  struct TriggerState {
    std::vector<bool> held;
    std::vector<uint64_t> positions;  // of ProgramPrints (OutputTail::Find)
    std::optional<uint64_t> since_ns;
  };

  bool IsDue(const Trigger& trigger, TriggerState& state, uint64_t base_ns);
  bool Holds(const Condition& condition, uint64_t& position);
  // Why the condition can never hold; empty: it can.
  std::string WhyNever(const Condition& condition) const;
  std::string WhyNever(const Trigger& trigger, const TriggerState& state) const;
  std::string WaitsFor(const Trigger& trigger, const TriggerState& state) const;

  // Each returns whether something has changed.
  bool Advance();
  bool AdvanceProgram(size_t program);
  bool AdvanceSteps();
  void Begin(size_t step);
  void RunRociLine(const RunRoci& run);
  void FinishRociLine();
  void Send(const SendSignal& send);
  void Check(const CheckValue& check);
  void NoteFault(const RunRoci& run);
  void StepVerdict(bool holds, const std::string& what, const std::string& found);

  bool IsOver() const;
  std::string Missing() const;
  void StopPrograms();
  // The loop has to look again then.
  void WakeAt(uint64_t time_ns) { wake_ns_ = std::min(wake_ns_, time_ns); }

  const Scenario& scenario_;
  Surroundings& surroundings_;
  ProcessSet& processes_;
  std::vector<ProgramRun> programs_;
  std::vector<TriggerState> program_states_;
  std::vector<uint64_t> ready_positions_;
  std::vector<std::optional<uint64_t>> ready_since_ns_;
  std::vector<TriggerState> step_states_;
  std::vector<AddedFault> added_faults_;
  size_t step_ = 0;                // the next
  Process* roci_ = nullptr;        // of the step that runs
  std::string step_text_;          // its line, filled in
  uint64_t last_step_ns_ = 0;      // when the last step was done
  std::optional<uint64_t> begin_;  // when programs may start
  uint64_t begun_ns_ = 0;
  uint64_t ended_ns_ = 0;
  uint64_t wake_ns_ = 0;
  uint64_t next_poll_ns_ = 0;  // when the daemon is asked again
  bool polls_now_ = false;
  bool gave_up_ = false;
  std::vector<Verdict>* verdicts_ = nullptr;
};

}  // namespace roci::tools
