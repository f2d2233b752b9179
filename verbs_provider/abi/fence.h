// The full fence between an atomic read-modify-write operation and later loads, which the protocols
// of the shared rings need (tests/model/rings_test.py checks them).
#pragma once

#include <atomic>

namespace roci::abi {

// To be called directly after an exchange, fetch_or, fetch_add or compare_exchange of any order. On
// x86 that operation was a full fence. Elsewhere it is none, even with memory_order_seq_cst: on
// arm64, later loads may be executed before its store is visible.
inline void FenceAfterExchange() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace roci::abi
