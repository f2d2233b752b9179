// Asking for cache lines before they are needed.
#pragma once

namespace roci::dataplane {

// For a line that another processor may hold and that is about to be written. Every x86-64
// processor knows the instruction (or ignores it), but the compiler uses it only where the
// architecture it was told names it, and asks for a readable line otherwise.
inline void PrefetchForWrite(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// The lines of [start, end); `start` is the beginning of a line.
inline void PrefetchLines(const void* start, const void* end) {
  const auto* line = static_cast<const char*>(start);
  for (; line < static_cast<const char*>(end); line += 64) __builtin_prefetch(line);
}

}  // namespace roci::dataplane
