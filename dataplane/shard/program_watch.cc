#include "dataplane/shard/program_watch.h"

#include <algorithm>
#include <utility>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"

namespace roci::dataplane {

ProgramWatch::Program* ProgramWatch::Find(const VerbsContext& context) {
  const auto found = std::ranges::find_if(programs_, [&](const Program& program) {
    return program.number != 0 ? program.number == context.program() : program.only == &context;
  });
  return found == programs_.end() ? nullptr : &*found;
}

void ProgramWatch::Add(const VerbsContext& context) noexcept {
  Program* program = Find(context);
  if (program == nullptr) {
    programs_.push_back({.number = context.program(), .only = &context});
    program = &programs_.back();
  }
  ++program->contexts;
  program->is_quiet = false;
  program->must_begin = true;
}

void ProgramWatch::Remove(const VerbsContext& context) {
  Program* const program = Find(context);
  if (program == nullptr) return;
  program->must_begin = true;  // its polls are those of fewer contexts now
  if (--program->contexts != 0) return;
  std::swap(*program, programs_.back());
  programs_.pop_back();
}

void ProgramWatch::NoteCompletion(const VerbsContext& context) {
  Program* const program = Find(context);
  if (program == nullptr) return;  // it is being removed
  program->is_quiet = false;
  program->must_begin = true;
}

void ProgramWatch::NoteAnswers() {
  for (Program& program : programs_) {
    program.is_quiet = false;
    program.must_begin = true;
  }
}

// The count of polls comes first; see the class.
void ProgramWatch::ReadAll(const OnShard& shard, std::span<VerbsContext* const> contexts) {
  for (Program& program : programs_) {
    program.polls = 0;
    program.completion_queues = 0;
    program.has_queue_pairs = false;
    program.rings = false;
  }
  for (VerbsContext* context : contexts) {
    Program* const program = Find(*context);
    if (program == nullptr) continue;
    program->polls += context->doorbells(shard).EmptyPolls();
    program->completion_queues += static_cast<uint32_t>(context->completion_queues().size());
    program->has_queue_pairs |= context->has_queue_pairs();
    program->rings |= context->doorbells(shard).Pending();
  }
}

bool ProgramWatch::BecomesQuiet(Program& program, uint64_t real_ns) const {
  if (program.must_begin) {
    program.must_begin = false;
    program.begin_polls = program.last_polls = program.polls;
    program.moved_ns = real_ns;
    return false;
  }
  if (program.polls - program.begin_polls >= 2 * std::max(program.completion_queues, 1U)) {
    program.is_guess = false;
    return true;
  }
  if (program.polls != program.last_polls) {
    program.last_polls = program.polls;
    program.moved_ns = real_ns;
  }
  program.is_guess = real_ns - program.moved_ns >= quiet_ns_;
  return program.is_guess;
}

bool ProgramWatch::AreQuiet(const OnShard& shard, std::span<VerbsContext* const> contexts,
                            uint64_t real_ns) {
  ReadAll(shard, contexts);
  bool all = true;
  for (Program& program : programs_) {
    if (!program.has_queue_pairs) continue;
    // It goes on without having been told anything: perhaps it has not posted all yet.
    if (program.rings && program.is_quiet && !program.has_rung) {
      program.has_rung = true;
      program.is_quiet = false;
      program.must_begin = true;
    }
    if (!program.is_quiet) program.is_quiet = BecomesQuiet(program, real_ns);
    all = all && program.is_quiet;
  }
  if (!all) return false;
  for (Program& program : programs_) program.has_rung = false;
  return true;
}

uint64_t ProgramWatch::TakeGuesses() {
  uint64_t guesses = 0;
  for (Program& program : programs_) {
    if (program.is_quiet && std::exchange(program.is_guess, false)) ++guesses;
  }
  return guesses;
}

}  // namespace roci::dataplane
