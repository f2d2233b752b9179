// Prefetching a cache line of a shared ring that is about to be written.
#pragma once

namespace roci::abi {

// Prefetches the cache line of `address`, which another processor may hold, in exclusive state.
// Every x86-64 processor executes or ignores PREFETCHW. The instruction is written as assembly
// because __builtin_prefetch prefetches only for reading if -march does not include PREFETCHW.
inline void PrefetchForWrite(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace roci::abi
