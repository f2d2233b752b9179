#include "dataplane/processor_time.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace roci::dataplane {

std::optional<ProcessorTime> ReadProcessorTime(pid_t thread) {
  std::ifstream stream(absl::StrCat("/proc/self/task/", thread, "/schedstat"));
  ProcessorTime time;
  if (stream >> time.ran_ns >> time.waited_ns) return time;
  return std::nullopt;
}

// The state follows the thread's name, which may hold anything.
bool Sleeps(pid_t thread) {
  std::ifstream stream(absl::StrCat("/proc/self/task/", thread, "/stat"));
  std::string stat;
  std::getline(stream, stat);
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() || stat[name_end + 2] != 'R';
}

}  // namespace roci::dataplane
