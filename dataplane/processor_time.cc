#include "dataplane/processor_time.h"

#include <fstream>

#include "absl/strings/str_cat.h"

namespace roci::dataplane {

std::optional<ProcessorTime> ReadProcessorTime(pid_t thread) {
  std::ifstream stream(absl::StrCat("/proc/self/task/", thread, "/schedstat"));
  ProcessorTime time;
  if (stream >> time.ran_ns >> time.waited_ns) return time;
  return std::nullopt;
}

}  // namespace roci::dataplane
