// When a fault hits, in management requests (JSON): "after_ns", "for_ns"; "nth", "every", "times",
// "chance", "seed". "nth" alone means one occasion; "times": 0 no limit.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "dataplane/types/fault_occasions.h"

namespace roci::control {

absl::Status TakeOccasions(const nlohmann::json& request, dataplane::FaultOccasions& out);
// Adds the keys whose values are not the usual ones.
void DescribeOccasions(const dataplane::FaultOccasions& when, nlohmann::json& out);

// Refuses a fault with a key that is neither one of `keys` nor one of the above.
absl::Status CheckFaultKeys(const nlohmann::json& fault, std::span<const std::string_view> keys);

}  // namespace roci::control
