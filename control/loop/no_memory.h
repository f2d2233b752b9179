// Turns a failed allocation (std::bad_alloc) into a refusal.
#pragma once

#include <new>

#include "absl/status/status.h"

namespace roci::control {

// ENOMEM. Only the first call allocates.
inline const absl::Status& NoMemory() {
  static const absl::Status status = absl::ResourceExhaustedError("the daemon is out of memory");
  return status;
}

// Returns f(), or NoMemory() if f() throws std::bad_alloc.
template <class F>
absl::Status OrRefuse(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace roci::control
