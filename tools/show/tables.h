// Formats the daemon's answers as text. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace roci::tools {

// `what` is one of the daemon's kinds ("devices", "qps", ...), `items` its array of objects.
// Missing values are printed as "-".
std::string FormatItems(const std::string& what, const nlohmann::json& items);

// The items of a device; if `items` are devices, the device itself.
nlohmann::json OfDevice(nlohmann::json items, const std::string& device);

// `later` of "lcores", with its cycles reduced by those of `earlier`.
nlohmann::json LcoresSince(const nlohmann::json& earlier, nlohmann::json later);

// Faults, one per line: number, settings and counts.
std::string FormatFaults(const nlohmann::json& faults);
// Impairments of a device with their counters, one per line; "none" if there are none.
std::string FormatImpairments(const nlohmann::json& impairments, const std::string& indent);

}  // namespace roci::tools
