#include "control/loop/event_pipe.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "control/loop/errno_status.h"
#include "control/loop/log.h"

namespace roci::control {
namespace {

// Writes parts of at most PIPE_BUF bytes, which are written completely or not at all (pipe(7)).
void WriteBack(const EventPipe& pipe, std::span<const std::byte> events) {
  while (!events.empty()) {
    const auto part = events.first(std::min<size_t>(events.size(), PIPE_BUF));
    if (write(pipe.writing.get(), part.data(), part.size()) < 0) {
      Log(LogArea::kSession, LogLevel::kWarning, "an event pipe is full, events are lost");
      return;
    }
    events = events.subspan(part.size());
  }
}

}  // namespace

absl::Status EventPipe::Create(EventPipe& pipe, UniqueFd& reading) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return StatusFromErrno(errno, "pipe2");
  reading.Reset(ends[0]);
  pipe.writing.Reset(ends[1]);
  if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) return StatusFromErrno(errno, "fcntl");
  // The program chooses whether its end blocks. A second open gives the daemon's end its own flags.
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
  pipe.unread.Reset(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return pipe.unread.valid() ? absl::OkStatus() : StatusFromErrno(errno, path);
}

// Reads the whole pipe at once, since a full pipe gets room by whole pages only, and writes the
// other events back. The program may read at the same time. If the program reads parts of events,
// the last event here may be a part: it is written back unchanged.
uint32_t TakeBackEvents(const EventPipe& pipe, uint64_t element, size_t event_size) {
  int waiting = 0;
  if (ioctl(pipe.unread.get(), FIONREAD, &waiting) != 0 || waiting <= 0) return 0;
  std::vector<std::byte> events(static_cast<size_t>(waiting));
  const ssize_t got = read(pipe.unread.get(), events.data(), events.size());
  if (got <= 0) return 0;
  const auto size = static_cast<size_t>(got);
  uint32_t taken = 0;
  size_t kept = 0;
  for (size_t at = 0; at < size;) {
    const size_t length = std::min(event_size, size - at);
    if (length == event_size && std::memcmp(&events[at], &element, sizeof(element)) == 0) {
      ++taken;
    } else {
      std::memmove(&events[kept], &events[at], length);
      kept += length;
    }
    at += length;
  }
  events.resize(kept);
  WriteBack(pipe, events);
  return taken;
}

}  // namespace roci::control
