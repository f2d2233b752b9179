// A value of the daemon's state, as a scenario names it: "counters roci0 /0/transport/acks_sent".
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "control/manage/manage_protocol.h"

namespace roci::tools {

struct Query {
  control::ShowKind kind = control::ShowKind::kDevices;
  std::string device;   // items of this device only; empty: all
  std::string pointer;  // into the list of items (RFC 6901)
};

// InvalidArgument: no such kind of items (with the nearest), or not a pointer.
absl::StatusOr<Query> MakeQuery(const std::string& kind, const std::string& device,
                                const std::string& pointer);
// "KIND [DEVICE] POINTER"
absl::StatusOr<Query> ParseQuery(const std::string& text);

// The value in the daemon's answer; the number of entries of a list or object; null: there is none.
nlohmann::json ValueOf(const Query& query, const nlohmann::json& items);

// As of ParseQuery.
std::string TextOf(const Query& query);

}  // namespace roci::tools
