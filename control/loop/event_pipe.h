// A pipe that carries events to an app, from which the daemon can take back what the app has not
// read: an object that is destroyed leaves no event behind, and the app has to acknowledge only
// what it was handed out (as the kernel's completion channels do it).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

struct EventPipe {
  UniqueFd writing;  // never blocks
  UniqueFd unread;   // the same pipe's other end, with file status flags of its own

  // `reading` is for the app. One reads whole events only.
  static absl::Status Create(EventPipe& pipe, UniqueFd& reading);
};

// Takes back the events of `event_size` bytes (8 or 16, a multiple of 8) that begin with `element`
// and that nobody has read; the others stay, in their order. Nobody else writes meanwhile, or there
// might be no room to put them back. Returns how many there were.
uint32_t TakeBackEvents(const EventPipe& pipe, uint64_t element, size_t event_size);

}  // namespace roci::control
