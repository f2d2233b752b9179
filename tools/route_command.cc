// roci route add|del|show: the routes of devices while the daemon runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "tools/commands.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"
#include "tools/show/terms.h"

namespace roci::tools {
namespace {

struct RouteOptions {
  std::string device;
  std::string network;
  std::string via;  // the word
  std::string gateway;
  uint32_t vlan = 0;
  bool json = false;
};

constexpr char kFooter[] = R"(
Networks of the device's own addresses (`roci addr show`) need no route. Of what leads to a peer the
longest prefix decides; gateway4 and gateway6 of the configuration are the routes 0.0.0.0/0 and ::/0.

A queue pair keeps the way that there was when it got its address vector (going to RTR), an address
handle the one when it was made, an identifier of librdmacm's the one when it resolved its address.
What does so afterwards follows the new routes. A device has 64 routes at most.

What was added is gone with the daemon; the configuration's `routes` are there whenever it starts.
Only the daemon's user and root may do this.)";

constexpr char kExamples[] = R"(
EXAMPLES
  roci route add roci0 10.1.0.0/16 via 10.99.0.9
  roci route add roci0 fd00:1::/64 via fe80::9
  roci route add roci0 default via 10.7.0.1 --vlan 7
  roci route del roci0 10.1.0.0/16

EXIT STATUS
  0   done
  1   refused; standard error says why
  2   wrong command line)";

constexpr char kNetworkHelp[] =
    "As 10.1.0.0/16 or fd00:1::/64; 10.1.2.3 for that host alone; \"default\" for everything";
constexpr char kDefaultHelp[] = "; without a gateway that is IPv4's (::/0: IPv6's)";

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "roci: %s\n", std::string(status.message()).c_str());
  return 1;
}

int Change(const char* action, const RouteOptions& options, const std::string& runtime_dir) {
  nlohmann::json request = {{"command", "route"},
                            {"action", action},
                            {"device", options.device},
                            {"network", options.network},
                            {"vlan", options.vlan}};
  if (!options.gateway.empty()) request["gateway"] = options.gateway;
  const absl::StatusOr<nlohmann::json> result = AskDaemon(runtime_dir, request);
  return result.ok() ? 0 : Fail(result.status());
}

int Show(const RouteOptions& options, const std::string& runtime_dir) {
  const absl::StatusOr<nlohmann::json> devices =
      AskDaemon(runtime_dir, {{"command", "show"}, {"what", "devices"}});
  if (!devices.ok()) return Fail(devices.status());
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
  if (!is_found) return Fail(absl::NotFoundError("there is no device " + options.device));
  const std::string text = options.json ? routes.dump(2) + "\n" : FormatItems("routes", routes);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

// DEVICE NETWORK via GATEWAY, as of ip-route(8).
void AddArguments(CLI::App& to, RouteOptions& options, bool needs_gateway) {
  to.add_option("DEVICE", options.device, "Its name, as roci0")->required();
  to.add_option("NETWORK", options.network,
                needs_gateway ? kNetworkHelp : std::string(kNetworkHelp) + kDefaultHelp)
      ->required();
  CLI::Option* via = to.add_option("via", options.via, "The word itself")
                         ->check(CLI::IsMember({"via"}))
                         ->option_text(" ");
  CLI::Option* gateway =
      to.add_option("GATEWAY", options.gateway, "A neighbour, as 10.99.0.9 or fe80::9");
  via->required(needs_gateway);
  gateway->required(needs_gateway);
  via->needs(gateway);
  to.add_option("--vlan", options.vlan, "The VLAN of both, 1 to 4094")->check(CLI::Range(1, 4094));
}

}  // namespace

void AddRouteCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RouteOptions>();
  CLI::App* command = app.add_subcommand("route", "Add, remove or show routes of devices");
  command->require_subcommand(1);
  command->footer(std::string(kFooter) + "\n" + kExamples);
  CLI::App* add = command->add_subcommand("add", "Send what is for a network by way of a gateway");
  AddArguments(*add, *options, true);
  add->footer(kFooter);
  add->callback(
      [options, &context] { context.exit_status = Change("add", *options, context.runtime_dir); });
  CLI::App* remove = command->add_subcommand(
      "del", "Take a route away; with a gateway, only if it is by that one");
  AddArguments(*remove, *options, false);
  remove->callback([options, &context] {
    context.exit_status = Change("remove", *options, context.runtime_dir);
  });
  CLI::App* show = command->add_subcommand("show", "Show the routes of a device, or of all");
  show->add_option("DEVICE", options->device, "Its name, as roci0");
  show->footer(ExplainColumns("routes"));
  show->add_flag("--json", options->json, "JSON, for programs");
  show->callback(
      [options, &context] { context.exit_status = Show(*options, context.runtime_dir); });
}

}  // namespace roci::tools
