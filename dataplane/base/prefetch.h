// Asking for cache lines before they are needed.
#pragma once

#include <cstddef>

namespace roci::dataplane {

inline constexpr size_t kCacheLineBytes = 64;

// The lines of [start, end); `start` is the beginning of a line.
inline void PrefetchLines(const void* start, const void* end) {
  const auto* line = static_cast<const char*>(start);
  for (; line < static_cast<const char*>(end); line += kCacheLineBytes) {
    __builtin_prefetch(line);
  }
}

}  // namespace roci::dataplane
