// A pipe of events to a program. The daemon can remove unread events, so that a destroyed object
// leaves none behind, and the program acknowledges only events that it has read, as with the
// kernel's completion channels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

struct EventPipe {
  UniqueFd writing;  // never blocks
  UniqueFd unread;   // a second descriptor of the read end, with its own file status flags

  // `reading` is the program's end; read whole events only.
  static absl::Status Create(EventPipe& pipe, UniqueFd& reading);
};

// Removes the unread events that begin with `element`; the others stay, in order. `event_size`: 8
// or 16 bytes. Returns the number of removed events. There must be no other writer meanwhile:
// otherwise there might be no room to write the other events back.
uint32_t TakeBackEvents(const EventPipe& pipe, uint64_t element, size_t event_size);

}  // namespace roci::control
