// System calls that access neither errno nor data of the C library or the dynamic linker, because
// these could lie in the memory that is being migrated.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "conversion of app memory needs a 64-bit system whose system-call instruction is known here"
#endif

namespace roci::provider {

/// Returns the kernel's result: -4095..-1 are negated errnos.
inline long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                       long f = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#endif
}

inline bool RawFailed(long result) { return result < 0 && result >= -4095; }

}  // namespace roci::provider
