// The size of an ordinary page. (x86-64 has no other.)
#pragma once

#include <cstdint>

namespace roci::provider {

inline constexpr uint64_t kPageSize = 4096;

}  // namespace roci::provider
