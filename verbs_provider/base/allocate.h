// Objects on the C heap: the plugin must not depend on a C++ runtime library, and reports ENOMEM
// instead of an exception.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

namespace roci::provider {

/// A value-initialised T, or null with errno ENOMEM.
template <class T>
T* Allocate() {
  void* memory = nullptr;
  const size_t alignment = alignof(T) < sizeof(void*) ? sizeof(void*) : alignof(T);
  const int error = posix_memalign(&memory, alignment, sizeof(T));
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  return new (memory) T();
}

template <class T>
void Free(T* object) {
  if (object == nullptr) return;
  std::destroy_at(object);
  free(object);
}

}  // namespace roci::provider
