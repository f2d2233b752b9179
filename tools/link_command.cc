// roci link down|up|flap: sets the link of a device
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "roce/work.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(A link that is down carries nothing, loopback included. Programs get IBV_EVENT_PORT_ERR, and
IBV_EVENT_PORT_ACTIVE when it is up again; ibv_query_port, sysfs, rdma(8) and `roci show ports` say
DOWN and Disabled. Connections stay: queue pairs retransmit, and fail only if the link is down for
longer than their retries last.

  down   until `roci link up`, or with --for until that time has passed
  up     let the link follow its port again
  flap   down for a second, or for the time of --for

Permitted for the daemon's user and root only. The state is lost when the daemon ends.

Examples:
  roci link down roci0
  roci link up roci0
  roci link flap roci0 --for 3s)";

constexpr uint64_t kMostNs = 3'600 * roce::kNsPerSecond;  // as the daemon's

struct LinkOptions {
  std::string device;
  std::string lasts;
  bool json = false;
};

int Set(const char* state, const std::string& lasts, const LinkOptions& options,
        const std::string& runtime_dir) {
  nlohmann::json request = {
      {"command", control::kLinkCommand}, {"device", options.device}, {"state", state}};
  if (!lasts.empty()) request["for_ns"] = *ParseDuration(lasts, kMostNs);
  return PrintAnswer(AskDaemon(runtime_dir, request), options.json, [&](const auto& answer) {
    return options.device + ": link " + answer.value("state", "?") + "\n";
  });
}

}  // namespace

void AddLinkCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<LinkOptions>();
  CLI::App* command = app.add_subcommand("link", "Set the link of a device down or up");
  command->require_subcommand(1);
  command->footer(kManual);
  const auto add = [&](const char* name, const char* help, const char* state, bool has_time,
                       const char* usual_time) {
    CLI::App* one = command->add_subcommand(name, help);
    one->add_option("DEV", options->device, "The device: roci0")->required();
    one->add_flag("--json", options->json, "Print JSON");
    if (has_time) {
      one->add_option("--for", options->lasts, "Up again after this time: 100ms, 3s, at most 3600s")
          ->check([](const std::string& text) {
            const auto time_ns = ParseDuration(text, kMostNs);
            return time_ns && *time_ns != 0 ? std::string()
                                            : text + " is not a time up to 3600s (100ms, 3s)";
          });
    }
    one->callback([options, state, usual_time, &context] {
      const std::string lasts = options->lasts.empty() ? usual_time : options->lasts;
      context.exit_status = Set(state, lasts, *options, context.runtime_dir);
    });
  };
  add("down", "Set the link down", "down", true, "");
  add("up", "Let the link follow its port", "up", false, "");
  add("flap", "Set the link down for a short time", "down", true, "1s");
}

}  // namespace roci::tools
