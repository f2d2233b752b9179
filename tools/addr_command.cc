// roci addr add|del|show: addresses of devices, changed while the daemon runs.
#include <CLI/CLI.hpp>
#include <cstdio>
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

struct AddrOptions {
  std::string device;
  std::string address;
  uint32_t vlan = 0;
  bool json = false;
};

int Change(const char* action, const AddrOptions& options, const std::string& runtime_dir) {
  const absl::StatusOr<nlohmann::json> result =
      AskDaemon(runtime_dir, {{"command", control::kAddressCommand},
                              {"action", action},
                              {"device", options.device},
                              {"address", options.address},
                              {"vlan", options.vlan}});
  if (!result.ok()) return PrintFailure(result.status());
  if (const auto index = result->find("index"); index != result->end()) {
    std::printf("%s: %s is GID %s\n", options.device.c_str(), options.address.c_str(),
                index->dump().c_str());
  }
  return 0;
}

// One item per GID table entry of each device; `only`: of this device, empty: all.
nlohmann::json EntriesOf(const nlohmann::json& devices, const std::string& only) {
  nlohmann::json entries = nlohmann::json::array();
  for (const nlohmann::json& device : devices) {
    if (!only.empty() && device.value("name", "") != only) continue;
    for (nlohmann::json gid : device.value("gids", nlohmann::json::array())) {
      gid["device"] = device.value("name", "");
      entries.push_back(std::move(gid));
    }
  }
  return entries;
}

int Show(const AddrOptions& options, const std::string& runtime_dir) {
  const absl::StatusOr<nlohmann::json> devices =
      AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kDevices));
  if (!devices.ok()) return PrintFailure(devices.status());
  const nlohmann::json entries = EntriesOf(*devices, options.device);
  if (entries.empty())
    return PrintFailure(absl::NotFoundError("there is no device " + options.device));
  return PrintAnswer(entries, options.json,
                     [](const auto& items) { return FormatItems("addresses", items); });
}

}  // namespace

void AddAddrCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<AddrOptions>();
  CLI::App* command = app.add_subcommand("addr", "Add, remove or show addresses of devices");
  command->require_subcommand(1);
  command->footer(
      "Programs that use the device get IBV_EVENT_GID_CHANGE; neighbours get an announcement.\n"
      "Changes are lost when the daemon ends. Permitted for the daemon's user and root only.");
  const auto add_vlan = [options](CLI::App* to) {
    to->add_option("--vlan", options->vlan,
                   "VLAN of the address, 1 to 4094. The first address of a VLAN also adds a "
                   "link-local address")
        ->check(CLI::Range(1, int{roce::VlanTag::kMaxId}));
  };
  CLI::App* add = command->add_subcommand("add", "Add an address to a device");
  add->add_option("DEVICE", options->device, "Name of the device, e.g. roci0")->required();
  add->add_option("ADDRESS", options->address, "E.g. 10.0.0.1/24 or fd00::1/64")->required();
  add_vlan(add);
  add->callback(
      [options, &context] { context.exit_status = Change("add", *options, context.runtime_dir); });
  CLI::App* remove = command->add_subcommand("del", "Remove an address from a device");
  remove->add_option("DEVICE", options->device, "Name of the device, e.g. roci0")->required();
  remove->add_option("ADDRESS", options->address, "E.g. 10.0.0.1 or 10.0.0.1/24")->required();
  add_vlan(remove);
  remove->callback([options, &context] {
    context.exit_status = Change("remove", *options, context.runtime_dir);
  });
  CLI::App* show = command->add_subcommand("show", "Show the addresses of one device, or of all");
  show->add_option("DEVICE", options->device, "Name of the device, e.g. roci0");
  show->footer(ExplainColumns("addresses"));
  show->add_flag("--json", options->json, "Print JSON");
  show->callback(
      [options, &context] { context.exit_status = Show(*options, context.runtime_dir); });
}

}  // namespace roci::tools
