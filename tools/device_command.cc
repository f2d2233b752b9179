// roci device unplug|plug: takes a device out and plugs it in again
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/commands.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Like an adapter that is pulled out of its slot while programs use it (hot unplug).

  unplug   Programs that have it open get IBV_EVENT_DEVICE_FATAL, and all of their calls fail.
           Identifiers of librdmacm on it get RDMA_CM_EVENT_DEVICE_REMOVAL. ibv_get_device_list,
           sysfs and rdma(8) no longer have the device, and its link is down.
  plug     It is there again, with the same name, GUID, addresses and faults. Programs must open it
           again. Listeners on all addresses accept connections through it again.

Permitted for the daemon's user and root only. After a restart of the daemon all are plugged in.

Examples:
  roci device unplug roci0
  roci device plug roci0)";

struct DeviceOptions {
  std::string device;
  bool json = false;
};

int Set(const char* state, const DeviceOptions& options, const std::string& runtime_dir) {
  const nlohmann::json request = {
      {"command", control::kDeviceCommand}, {"device", options.device}, {"state", state}};
  return PrintAnswer(AskDaemon(runtime_dir, request), options.json, [&](const auto& answer) {
    const auto programs = answer.value("programs", uint64_t{0});
    return options.device + ": " + answer.value("state", "?") +
           (programs != 0 ? ", was open " + std::to_string(programs) + " times" : "") + "\n";
  });
}

}  // namespace

void AddDeviceCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DeviceOptions>();
  CLI::App* command = app.add_subcommand("device", "Unplug a device and plug it in again");
  command->require_subcommand(1);
  command->footer(kManual);
  const auto add = [&](const char* name, const char* help, const char* state) {
    CLI::App* one = command->add_subcommand(name, help);
    one->add_option("DEV", options->device, "The device: roci0")->required();
    one->add_flag("--json", options->json, "Print JSON");
    one->callback([options, state, &context] {
      context.exit_status = Set(state, *options, context.runtime_dir);
    });
  };
  add("unplug", "Take the device out", "unplugged");
  add("plug", "Plug the device in again", "plugged");
}

}  // namespace roci::tools
