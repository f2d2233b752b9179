// Which programs a fault concerns: by name, by process number, or all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace roci::dataplane {

struct ProgramMatch {
  static constexpr size_t kMostNameBytes = 15;  // of a name in Linux (TASK_COMM_LEN)

  std::string name;  // as in ps -o comm; empty: any
  uint32_t pid = 0;  // 0: any

  bool MatchesAll() const { return name.empty() && pid == 0; }
  bool Matches(std::string_view program, uint32_t program_pid) const {
    return (name.empty() || name == program) && (pid == 0 || pid == program_pid);
  }
};

}  // namespace roci::dataplane
