// Prefetching a cache line of a shared ring that is about to be written.
#pragma once

namespace roci::abi {

// For a line that another processor may hold. Every x86-64 processor knows the instruction (or
// ignores it), but the compiler asks for a readable line where the architecture that it was told
// does not name it.
inline void PrefetchForWrite(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace roci::abi
