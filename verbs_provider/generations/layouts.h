// The layouts of libibverbs' private structures, named after the first release of rdma-core that
// has them. The number 34 stands for 36, which has the private ABI number 34.
//
//   rdma-core  private ABI  layout
//   36-56      34           34
//   57-58      57           34
//   59-61      59           59
//   62-63      59           62
//   64         64           64
//   65         65           65
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
