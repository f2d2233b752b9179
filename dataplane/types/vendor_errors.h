// The vendor_err of completions, by their status.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "roce/work.h"

namespace roci::dataplane {

inline constexpr size_t kCompletionStatusCount =
    static_cast<size_t>(roce::CompletionStatus::kTagRendezvousIncomplete) + 1;
// Indexed by roce::CompletionStatus.
using VendorErrors = std::array<uint32_t, kCompletionStatusCount>;

// The number of the status: not 0 for errors.
inline constexpr VendorErrors kPlainVendorErrors = [] {
  VendorErrors all{};
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}();

}  // namespace roci::dataplane
