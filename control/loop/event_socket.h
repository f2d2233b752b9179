// The socket pair by which completion events or asynchronous events reach a program.
//
// It is no pipe: read(2) holds a pipe's lock while it copies to the program's memory, so a program
// whose page does not come would keep the lcore from writing. A socket's sender does not take the
// receiver's lock.
#pragma once

#include "absl/status/status.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// `sending` never blocks, and takes one event per write. While the program does not read, at most
// 64 KiB of the kernel's memory, about 85 events, wait (as much memory as a pipe has). `receiving`
// is the program's end: each read takes one event, and nothing can be sent by it, so closing
// `sending` closes no descriptor of the program's.
absl::Status OpenEventSocket(UniqueFd& sending, UniqueFd& receiving);

}  // namespace roci::control
