#include "control/manage/route_commands.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "control/loop/log.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/manage_request.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

struct RouteRequest {
  std::string text;  // for messages
  InterfaceAddress network;
  std::optional<roce::Gid> gateway;
};

void LogChange(const Device& device, const RouteRequest& request, const char* what) {
  Log(LogArea::kDaemon, LogLevel::kNotice, "%s: route %s%s %s", device.name().c_str(),
      request.text.c_str(),
      request.network.vlan == 0 ? "" : absl::StrCat(" in VLAN ", request.network.vlan).c_str(),
      what);
}

// With a gateway both texts are parsed together: their address families must be equal, and
// "default" gets the family of the gateway.
absl::StatusOr<RouteRequest> Parse(const std::string& network, const std::string& gateway) {
  if (gateway.empty()) {
    const absl::StatusOr<InterfaceAddress> parsed = ParseNetwork(network, true);
    if (!parsed.ok()) return parsed.status();
    return RouteRequest{network, *parsed, std::nullopt};
  }
  const absl::StatusOr<Route> route = ParseRoute(network, gateway);
  if (!route.ok()) return route.status();
  return RouteRequest{absl::StrCat(network, " via ", gateway), route->network, route->gateway};
}

absl::Status Apply(Device& device, bool adds, const RouteRequest& request) {
  return adds ? device.AddRoute({request.network, *request.gateway})
              : device.RemoveRoute(request.network, request.gateway);
}

absl::StatusOr<Json> Run(const Services& services, const Json& request) {
  const absl::StatusOr<std::string> action = RequestText(request, "action");
  if (!action.ok()) return action.status();
  const bool adds = *action == "add";
  if (!adds && *action != "remove") return absl::InvalidArgumentError("\"action\": add or remove");
  const absl::StatusOr<std::string> network = RequestText(request, "network");
  if (!network.ok()) return network.status();
  std::string gateway;
  if (adds || request.contains("gateway")) {
    const absl::StatusOr<std::string> given = RequestText(request, "gateway");
    if (!given.ok()) return given.status();
    gateway = *given;
  }
  const absl::StatusOr<uint16_t> vlan = RequestVlan(request);
  if (!vlan.ok()) return vlan.status();
  const absl::StatusOr<Device*> device = RequestDevice(services, request);
  if (!device.ok()) return device.status();
  absl::StatusOr<RouteRequest> route = Parse(*network, gateway);
  if (!route.ok()) return RequestRefusal((*device)->name(), *network, route.status().message());
  route->network.vlan = *vlan;
  const absl::Status status = Apply(**device, adds, *route);
  if (!status.ok()) return RequestRefusal((*device)->name(), route->text, status.message());
  LogChange(**device, *route, adds ? "added" : "removed");
  return Json::object();
}

}  // namespace

void AddRouteCommand(ManageServer& server, Services& services) {
  server.AddCommand(kRouteCommand,
                    [&services](const Json& request) { return Run(services, request); });
}

}  // namespace roci::control
