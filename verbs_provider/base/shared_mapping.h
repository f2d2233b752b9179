// Mappings of the daemon's memfds: rings, the doorbell page, device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::provider {

/// Copyable; the owner calls Unmap. A forked child does not inherit the mapping and must not call
/// Unmap, because its address may be in use for other memory there.
struct SharedMapping {
  std::byte* data = nullptr;
  size_t size = 0;

  /// Maps `bytes` bytes of `fd`, which the caller still owns. 0 or an errno: EPROTO if the file is
  /// smaller or is not sealed against shrinking, so that access could raise SIGBUS later.
  int Map(int fd, uint64_t bytes);
  /// Whether this process can get one more descriptor and map `bytes` bytes now: 0 or an errno. For
  /// requests that the daemon cannot take back. `fd`: an open descriptor; -1: tries only to map.
  static int CheckRoom(int fd, uint64_t bytes);
  void Unmap();
  /// The `count` objects at `offset`; null if they are misaligned or not inside the mapping.
  template <class T>
  T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset % alignof(T) != 0 || offset > size || count > (size - offset) / sizeof(T)) {
      return nullptr;
    }
    return reinterpret_cast<T*>(data + offset);
  }
};

}  // namespace roci::provider
