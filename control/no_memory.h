// Where an allocation fails, what asked for it is refused, and the daemon goes on.
#pragma once

#include <new>

#include "absl/status/status.h"

namespace roci::control {

// ENOMEM. Once it has been called it takes no memory.
inline const absl::Status& NoMemory() {
  static const absl::Status status = absl::ResourceExhaustedError("the daemon lacks memory");
  return status;
}

// f()'s status, or NoMemory() where it throws std::bad_alloc.
template <class F>
absl::Status OrRefuse(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  }
}

}  // namespace roci::control
