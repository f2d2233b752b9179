// The size of an ordinary page. (x86-64 has no other.)
#pragma once

#include <cstdint>

namespace roci::memory {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kPageShift = 12;
static_assert(kPageBytes == uint64_t{1} << kPageShift);

}  // namespace roci::memory
