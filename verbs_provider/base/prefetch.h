// Prefetch of a cache line for writing.
#pragma once

namespace roci::provider {

/// Requests exclusive ownership of a line that another processor may have. Inline assembly, because
/// __builtin_prefetch emits PREFETCHW only for some -march values; x86-64 processors without the
/// instruction ignore it.
inline void PrefetchForWrite(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace roci::provider
