// Whether the plugin of a program speaks this daemon's version of the protocol.
#pragma once

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "verbs_provider/abi/session_head.h"

namespace roci::control {

// EPROTONOSUPPORT unless it does, and which of the two is too old.
inline absl::Status CheckProtocolVersion(uint16_t major) {
  if (major == ROCI_ABI_MAJOR) return absl::OkStatus();
  return StatusFromErrno(
      EPROTONOSUPPORT,
      absl::StrCat("the program's plugin speaks protocol version ", major, ", this daemon ",
                   ROCI_ABI_MAJOR, ": ",
                   major < ROCI_ABI_MAJOR ? "the plugin is too old, install this daemon's"
                                          : "this daemon is too old, restart the installed one"));
}

}  // namespace roci::control
