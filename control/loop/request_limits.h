// The largest request of a session; sizes the buffers of sockets, descriptor broker and decoder.
#pragma once

#include <cstddef>

#include "verbs_provider/abi/session.h"

namespace roci::control {

inline constexpr size_t kMaxRequestBytes = sizeof(roci_abi_rereg_mr_request);
inline constexpr size_t kMaxRequestFds = ROCI_ABI_MAX_EXTENTS;

}  // namespace roci::control
