// roci route add|del|show: routes of devices, changed while the daemon runs.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "roce/headers.h"
#include "tools/commands.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"
#include "tools/show/terms.h"

namespace roci::tools {
namespace {

struct RouteOptions {
  std::string device;
  std::string network;
  std::string via;  // the keyword
  std::string gateway;
  uint32_t vlan = 0;
  bool json = false;
};

constexpr char kFooter[] = R"(
Networks of the device's own addresses (`roci addr show`) need no route. The route with the longest
matching prefix is used; gateway4 and gateway6 of the configuration are the routes 0.0.0.0/0 and
::/0. A device has at most 64 routes.

Routes apply when a queue pair gets its address vector (transition to RTR), when an address handle
is created, and when a librdmacm identifier resolves its address. Existing ones keep their path.

Changes are lost when the daemon ends; it sets the configuration's `routes` at each start. Permitted
for the daemon's user and root only.)";

constexpr char kExamples[] = R"(
EXAMPLES
  roci route add roci0 10.1.0.0/16 via 10.99.0.9
  roci route add roci0 fd00:1::/64 via fe80::9
  roci route add roci0 default via 10.7.0.1 --vlan 7
  roci route del roci0 10.1.0.0/16

EXIT STATUS
  0   done
  1   refused; the reason is on standard error
  2   wrong command line)";

constexpr char kNetworkHelp[] =
    "E.g. 10.1.0.0/16 or fd00:1::/64; 10.1.2.3: this host only; \"default\": the default route";
constexpr char kDefaultHelp[] = " (without GATEWAY that of IPv4; ::/0 is that of IPv6)";

int Change(const char* action, const RouteOptions& options, const std::string& runtime_dir) {
  nlohmann::json request = {{"command", control::kRouteCommand},
                            {"action", action},
                            {"device", options.device},
                            {"network", options.network},
                            {"vlan", options.vlan}};
  if (!options.gateway.empty()) request["gateway"] = options.gateway;
  const absl::StatusOr<nlohmann::json> result = AskDaemon(runtime_dir, request);
  return result.ok() ? 0 : PrintFailure(result.status());
}

int Show(const RouteOptions& options, const std::string& runtime_dir) {
  const absl::StatusOr<nlohmann::json> devices =
      AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kDevices));
  if (!devices.ok()) return PrintFailure(devices.status());
  nlohmann::json routes = nlohmann::json::array();
  bool is_found = options.device.empty();
  for (const nlohmann::json& device : *devices) {
    const std::string name = device.value("name", "");
    if (!options.device.empty() && name != options.device) continue;
    is_found = true;
    for (nlohmann::json route : device.value("routes", nlohmann::json::array())) {
      route["device"] = name;
      routes.push_back(std::move(route));
    }
  }
  if (!is_found) return PrintFailure(absl::NotFoundError("there is no device " + options.device));
  return PrintAnswer(routes, options.json,
                     [](const auto& items) { return FormatItems("routes", items); });
}

// DEVICE NETWORK via GATEWAY, as of ip-route(8).
void AddArguments(CLI::App& to, RouteOptions& options, bool needs_gateway) {
  to.add_option("DEVICE", options.device, "Name of the device, e.g. roci0")->required();
  to.add_option("NETWORK", options.network,
                needs_gateway ? kNetworkHelp : std::string(kNetworkHelp) + kDefaultHelp)
      ->required();
  CLI::Option* via = to.add_option("via", options.via, "Keyword before GATEWAY")
                         ->check(CLI::IsMember({"via"}))
                         ->option_text(" ");
  CLI::Option* gateway =
      to.add_option("GATEWAY", options.gateway, "A neighbour, e.g. 10.99.0.9 or fe80::9");
  via->required(needs_gateway);
  gateway->required(needs_gateway);
  via->needs(gateway);
  to.add_option("--vlan", options.vlan, "VLAN of network and gateway, 1 to 4094")
      ->check(CLI::Range(1, int{roce::VlanTag::kMaxId}));
}

}  // namespace

void AddRouteCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RouteOptions>();
  CLI::App* command = app.add_subcommand("route", "Add, remove or show routes of devices");
  command->require_subcommand(1);
  command->footer(std::string(kFooter) + "\n" + kExamples);
  CLI::App* add = command->add_subcommand("add", "Add a route to a network through a gateway");
  AddArguments(*add, *options, true);
  add->footer(kFooter);
  add->callback(
      [options, &context] { context.exit_status = Change("add", *options, context.runtime_dir); });
  CLI::App* remove =
      command->add_subcommand("del", "Remove a route; with GATEWAY, only if it uses this gateway");
  AddArguments(*remove, *options, false);
  remove->callback([options, &context] {
    context.exit_status = Change("remove", *options, context.runtime_dir);
  });
  CLI::App* show = command->add_subcommand("show", "Show the routes of one device, or of all");
  show->add_option("DEVICE", options->device, "Name of the device, e.g. roci0");
  show->footer(ExplainColumns("routes"));
  show->add_flag("--json", options->json, "Print JSON");
  show->callback(
      [options, &context] { context.exit_status = Show(*options, context.runtime_dir); });
}

}  // namespace roci::tools
