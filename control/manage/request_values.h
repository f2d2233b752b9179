// Values in management requests: takes them out of the JSON and checks them. Without the key, a
// value keeps what it has; otherwise InvalidArgument names the key and what it must be.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "dataplane/types/frame_filter.h"
#include "dataplane/types/impairment_settings.h"

namespace roci::control {

absl::Status WrongValue(const char* key, const char* what);
absl::Status TakeNumber(const nlohmann::json& request, const char* key, uint64_t most,
                        uint64_t& out);
absl::Status TakeFlag(const nlohmann::json& request, const char* key, bool& out);
absl::Status TakeChance(const nlohmann::json& request, const char* key, dataplane::Chance& out);
// "direction": "in", "out" or "both" (nothing).
absl::Status TakeDirection(const nlohmann::json& request,
                           std::optional<dataplane::LinkDirection>& out);
// "qps", "peers" and "opcodes".
absl::StatusOr<dataplane::FrameFilter> TakeFilter(const nlohmann::json& request);

}  // namespace roci::control
