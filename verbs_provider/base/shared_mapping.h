// Memory that the daemon made and this process maps: rings and the doorbell page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roci::provider {

/// Plain data; whoever holds it calls Unmap. A forked child does not have the mapping (its address
/// may belong to something else there), so a child must not call Unmap.
struct SharedMapping {
  std::byte* data = nullptr;
  size_t size = 0;

  /// Maps `size` bytes of `fd`, which stays the caller's. 0 or an errno: EPROTO where the file is
  /// smaller than that or no sealed memfd, whose access could raise SIGBUS later.
  int Map(int fd, uint64_t bytes);
  void Unmap();
  /// The object at `offset`; null where it would not lie wholly inside.
  template <class T>
  T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset % alignof(T) != 0 || offset > size || count > (size - offset) / sizeof(T)) {
      return nullptr;
    }
    return reinterpret_cast<T*>(data + offset);
  }
};

}  // namespace roci::provider
