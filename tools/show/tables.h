// What the daemon shows, as text for people. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace roci::tools {

// `what` is one of the daemon's kinds ("devices", "qps", ...), `items` its array of objects.
// Missing values come out as "-".
std::string FormatItems(const std::string& what, const nlohmann::json& items);

// Those of a device: of `items` that are devices, itself.
nlohmann::json OfDevice(nlohmann::json items, const std::string& device);

// `later` of "lcores", with the cycles that have passed since `earlier` instead of all.
nlohmann::json LcoresSince(const nlohmann::json& earlier, nlohmann::json later);

// Impairments of a device, a line each with what they have done; "none" if there are none.
std::string FormatImpairments(const nlohmann::json& impairments, const std::string& indent);

}  // namespace roci::tools
