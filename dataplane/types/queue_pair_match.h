// Which queue pairs a fault concerns: of which programs, and the n-th that is created.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "dataplane/types/program_match.h"

namespace roci::dataplane {

// The program that created a queue pair, and the order of creation.
struct QueuePairOrigin {
  std::array<char, ProgramMatch::kMostNameBytes + 1> program_name{};  // ends with 0
  uint32_t pid = 0;
  uint64_t number = 0;  // unique on its device, from 1; grows

  void SetProgram(std::string_view name, uint32_t program_pid) {
    program_name = {};
    std::copy_n(name.begin(), std::min(name.size(), program_name.size() - 1), program_name.begin());
    pid = program_pid;
  }
  std::string_view program() const { return program_name.data(); }
};

struct QueuePairMatch {
  ProgramMatch program;
  // Of those that match and are created from now on, the n-th. 0: all, and those that exist.
  uint64_t created = 0;

  bool MatchesAll() const { return program.MatchesAll() && created == 0; }
};

// The queue pairs of a match as they are created.
class QueuePairChoice {
 public:
  // `match` outlives it.
  explicit QueuePairChoice(const QueuePairMatch& match) : match_(match) {}

  // Control thread, before the queue pair is used.
  void NoteCreated(const QueuePairOrigin& origin) {
    if (match_.created == 0 || !match_.program.Matches(origin.program(), origin.pid)) return;
    if (++created_ == match_.created) number_.store(origin.number, std::memory_order_relaxed);
  }
  // Whether this was the one that `created` names.
  bool Named(const QueuePairOrigin& origin) const {
    return match_.created != 0 && origin.number == number_.load(std::memory_order_relaxed);
  }
  // Any thread. `origin`: of the queue pair; null: there is none.
  bool Takes(const QueuePairOrigin* origin) const {
    if (match_.MatchesAll()) return true;
    if (origin == nullptr) return false;
    return match_.created != 0 ? Named(*origin)
                               : match_.program.Matches(origin->program(), origin->pid);
  }

 private:
  const QueuePairMatch& match_;
  uint64_t created_ = 0;
  std::atomic<uint64_t> number_{0};  // of the n-th created; 0: not created yet
};

}  // namespace roci::dataplane
