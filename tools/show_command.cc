// roci show WHAT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tools/commands.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"

namespace roci::tools {
namespace {

struct ShowOptions {
  std::string what = "devices";
  bool json = false;
};

// What people type, and what the daemon calls it.
const std::map<std::string, std::string>& Kinds() {
  static const std::map<std::string, std::string> kinds = [] {
    std::map<std::string, std::string> names;
    for (const char* plural : {"devices", "ports", "apps", "qps", "cqs", "mrs", "lcores"}) {
      const std::string name = plural;
      names[name] = name;
      names[name.substr(0, name.size() - 1)] = name;
    }
    names["counters"] = "counters";
    names["neighbours"] = "neighbours";
    return names;
  }();
  return kinds;
}

int Show(const ShowOptions& options, const std::string& runtime_dir) {
  const std::string& what = Kinds().at(options.what);
  const absl::StatusOr<nlohmann::json> items =
      AskDaemon(runtime_dir, {{"command", "show"}, {"what", what}});
  if (!items.ok()) {
    std::fprintf(stderr, "roci: %s\n", std::string(items.status().message()).c_str());
    return 1;
  }
  const std::string text = options.json ? items->dump(2) + "\n" : FormatItems(what, *items);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void AddShowCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Show what the daemon has and does");
  command->footer(
      "WHAT is one of\n"
      "  devices     devices, their addresses and what is in use of their limits (the default)\n"
      "  ports       ports, with counters that are not zero and why frames were dropped\n"
      "  counters    as ports, with every counter\n"
      "  apps        programs that have a device open\n"
      "  qps         queue pairs: state, PSNs, window, timers (* running), retries left\n"
      "  cqs         completion queues\n"
      "  mrs         memory regions: size, key, and how the daemon reaches them\n"
      "  lcores      dataplane threads\n"
      "  neighbours  peers whose MAC is known or asked for\n"
      "Only the daemon's user and root may ask.");
  command
      ->add_option_function<std::string>(
          "WHAT", [options](const std::string& what) { options->what = what; }, "What to show")
      ->check([](const std::string& what) {
        return Kinds().contains(what) ? std::string() : "there is no such thing to show: " + what;
      });
  command->add_flag("--json", options->json, "JSON, for programs");
  command->callback(
      [options, &context] { context.exit_status = Show(*options, context.runtime_dir); });
}

}  // namespace roci::tools
