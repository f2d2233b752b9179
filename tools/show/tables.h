// What the daemon shows, as text for people. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace roci::tools {

// `what` is one of the daemon's kinds ("devices", "qps", ...), `items` its array of objects.
// Missing values come out as "-".
std::string FormatItems(const std::string& what, const nlohmann::json& items);

}  // namespace roci::tools
