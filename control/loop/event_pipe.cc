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

// In parts that go whole or not at all.
void WriteBack(const EventPipe& pipe, std::span<const std::byte> events) {
  while (!events.empty()) {
    const auto part = events.first(std::min<size_t>(events.size(), PIPE_BUF));
    if (write(pipe.writing.get(), part.data(), part.size()) < 0) {
      Log(LogArea::kSession, LogLevel::kWarning, "an event pipe is full: events are lost");
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
  // The app decides whether its own end blocks; opened anew, ours has flags of its own.
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
  pipe.unread.Reset(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return pipe.unread.valid() ? absl::OkStatus() : StatusFromErrno(errno, path);
}

// All that waits is read at once, since a pipe that is full gets room by whole pages only, and what
// is wanted goes back. The app may read meanwhile. An app that reads parts of events leaves a part
// at the end here: it goes back as it is, and is that app's to make sense of.
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
