#include "dataplane/base/processor_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "dataplane/base/shared_memory.h"

namespace roci::dataplane {
namespace {

using Text = std::array<char, 256>;

// The first bytes of a file of the thread in /proc; empty: no such file.
std::string_view Read(pid_t thread, const char* name, Text& text) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/%s", thread, name);
  const Fd file(open(path.data(), O_RDONLY | O_CLOEXEC));
  const ssize_t length = file.valid() ? read(file.get(), text.data(), text.size()) : 0;
  return {text.data(), length > 0 ? static_cast<size_t>(length) : 0};
}

}  // namespace

std::optional<ProcessorTime> ReadProcessorTime(pid_t thread) {
  Text text;
  const std::string_view counts = Read(thread, "schedstat", text);
  const char* const end = counts.data() + counts.size();
  ProcessorTime time;
  const auto ran = std::from_chars(counts.data(), end, time.ran_ns);
  if (ran.ec != std::errc() || ran.ptr == end) return std::nullopt;
  const auto waited = std::from_chars(ran.ptr + 1, end, time.waited_ns);
  return waited.ec == std::errc() ? std::optional(time) : std::nullopt;
}

// The state follows the thread's name, which may contain any characters.
bool Sleeps(pid_t thread) {
  Text text;
  const std::string_view stat = Read(thread, "stat", text);
  const size_t name_end = stat.rfind(')');
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ||
         stat[name_end + 2] != 'R';
}

}  // namespace roci::dataplane
