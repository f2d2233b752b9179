#include "control/manage/fault_occasions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"
#include "control/manage/request_values.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

constexpr auto kOccasionKeys = std::to_array<std::string_view>(
    {"after_ns", "for_ns", "nth", "every", "times", "chance", "seed"});

}  // namespace

absl::Status TakeOccasions(const Json& request, dataplane::FaultOccasions& out) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  // One occasion, unless something else says how many.
  if (request.contains("nth") && !request.contains("every")) out.times = 1;
  for (const absl::Status& status :
       {TakeNumber(request, "after_ns", kMost, out.after_ns),
        TakeNumber(request, "for_ns", kMost, out.for_ns),
        TakeNumber(request, "nth", kMost, out.nth), TakeNumber(request, "every", kMost, out.every),
        TakeNumber(request, "times", kMost, out.times), TakeChance(request, "chance", out.chance),
        TakeNumber(request, "seed", UINT64_MAX, out.seed)}) {
    if (!status.ok()) return status;
  }
  if (out.nth == 0) return WrongValue("nth", "1 or more");
  if (out.every == 0) return WrongValue("every", "1 or more");
  return absl::OkStatus();
}

void DescribeOccasions(const dataplane::FaultOccasions& when, Json& out) {
  const auto add = [&out](const char* key, uint64_t value, uint64_t usual) {
    if (value != usual) out[key] = value;
  };
  add("after_ns", when.after_ns, 0);
  add("for_ns", when.for_ns, 0);
  add("nth", when.nth, 1);
  add("every", when.every, 1);
  // 0 is not the default with "nth" alone.
  add("times", when.times, when.nth != 1 && when.every == 1 ? UINT64_MAX : 0);
  add("seed", when.seed, 0);
  if (when.chance != dataplane::kAlways) {
    // Rounded, so that the value is shown as it was typed.
    const double chance = static_cast<double>(when.chance) / double{dataplane::kAlways};
    out["chance"] = std::round(chance * 1e9) / 1e9;
  }
}

absl::Status CheckFaultKeys(const Json& fault, std::span<const std::string_view> keys) {
  if (!fault.is_object()) return absl::InvalidArgumentError("a fault must be an object");
  std::vector<std::string_view> all(keys.begin(), keys.end());
  all.insert(all.end(), kOccasionKeys.begin(), kOccasionKeys.end());
  for (const auto& [key, value] : fault.items()) {
    if (std::ranges::find(all, std::string_view(key)) != all.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("such a fault has no \"", key,
                                                   "\"; the nearest is \"",
                                                   std::string(NearestName(key, all)), "\""));
  }
  return absl::OkStatus();
}

}  // namespace roci::control
