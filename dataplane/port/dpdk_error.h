// A failure of a DPDK call, as a status.
#pragma once

#include <rte_errno.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace roci::dataplane {

// `error`: an errno, or its negative. `what`: what failed.
inline absl::Status DpdkError(int error, absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", rte_strerror(error < 0 ? -error : error)));
}

}  // namespace roci::dataplane
