// Prefetches cache lines for reading.
#pragma once

#include <cstddef>

namespace roci::dataplane {

inline constexpr size_t kCacheLineBytes = 64;

// Prefetches the lines of [start, end); `start` is aligned to a line.
inline void PrefetchLines(const void* start, const void* end) {
  const auto* line = static_cast<const char*>(start);
  for (; line < static_cast<const char*>(end); line += kCacheLineBytes) {
    __builtin_prefetch(line);
  }
}

}  // namespace roci::dataplane
