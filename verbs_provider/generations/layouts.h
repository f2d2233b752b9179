// The layouts of libibverbs' private structures (abi/generations.h).
#pragma once

#include <cstddef>

namespace roci::provider {

/// Bytes of a verbs_context before its ibv_context. New calls are put at its front.
constexpr size_t ContextOffset(int layout) {
  constexpr size_t kOffsetOf36 = 320;
  const size_t new_calls = layout >= 64 ? 6 : layout >= 62 ? 4 : layout >= 59 ? 3 : 0;
  return kOffsetOf36 + new_calls * sizeof(void (*)());
}

}  // namespace roci::provider
