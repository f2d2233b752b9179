#include "control/loop/program_name.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace roci::control {

std::string ProgramName(pid_t pid) {
  std::ifstream stream(absl::StrCat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(stream, name);
  return name.empty() ? "?" : name;
}

}  // namespace roci::control
