// roci show WHAT
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tools/commands.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"
#include "tools/show/terms.h"

namespace roci::tools {
namespace {

struct ShowOptions {
  std::string what = "devices";
  std::string device;  // empty: all
  bool json = false;
  int timeout_s = 10;
};

// Accepted arguments, and the daemon's name of each.
const std::map<std::string, std::string>& Kinds() {
  static const std::map<std::string, std::string> kinds = [] {
    std::map<std::string, std::string> names;
    for (const char* plural :
         {"devices", "ports", "apps", "qps", "cqs", "srqs", "mrs", "lcores", "connections"}) {
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

absl::StatusOr<nlohmann::json> Ask(const ShowOptions& options, const std::string& runtime_dir) {
  const std::string& what = Kinds().at(options.what);
  const nlohmann::json request = {{"command", "show"}, {"what", what}};
  absl::StatusOr<nlohmann::json> items = AskDaemon(runtime_dir, request, options.timeout_s);
  if (what != "lcores" || options.json || !items.ok()) return items;
  // The current load is the difference between two samples.
  constexpr auto kInterval = std::chrono::milliseconds(250);
  std::this_thread::sleep_for(kInterval);
  absl::StatusOr<nlohmann::json> later = AskDaemon(runtime_dir, request, options.timeout_s);
  return later.ok() ? LcoresSince(*items, *std::move(later)) : later;
}

int Fail(const std::string& message, int exit_status) {
  std::fprintf(stderr, "roci: %s\n", message.c_str());
  return exit_status;
}

// The error in the choice of a device; empty: none.
absl::StatusOr<std::string> FaultOfDevice(const ShowOptions& options,
                                          const std::string& runtime_dir) {
  if (options.device.empty()) return std::string();
  const absl::StatusOr<nlohmann::json> devices =
      AskDaemon(runtime_dir, {{"command", "show"}, {"what", "devices"}}, options.timeout_s);
  if (!devices.ok()) return devices.status();
  std::string names;
  for (const nlohmann::json& device : *devices) {
    const std::string name = device.value("name", "");
    if (name == options.device) return std::string();
    names += (names.empty() ? "" : ", ") + name;
  }
  return "there is no device '" + options.device + "'; there are: " + names;
}

int Show(const ShowOptions& options, const std::string& runtime_dir) {
  const std::string& what = Kinds().at(options.what);
  if (!options.device.empty() && what == "lcores") {
    return Fail("lcores serve all devices; leave '" + options.device + "' out", 2);
  }
  const absl::StatusOr<std::string> fault = FaultOfDevice(options, runtime_dir);
  if (!fault.ok()) return Fail(std::string(fault.status().message()), 1);
  if (!fault->empty()) return Fail(*fault, 2);
  absl::StatusOr<nlohmann::json> items = Ask(options, runtime_dir);
  if (!items.ok()) return Fail(std::string(items.status().message()), 1);
  if (!options.device.empty()) items = OfDevice(*std::move(items), options.device);
  const std::string text = options.json ? items->dump(2) + "\n" : FormatItems(what, *items);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void AddShowCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Show objects and counters of the daemon");
  static const std::string kKinds =
      "WHAT is one of\n"
      "  devices     devices, their addresses, and use of their limits (default)\n"
      "  ports       ports, their non-zero counters, and drop reasons\n"
      "  counters    as ports, with all counters\n"
      "  apps        programs that have a device open\n"
      "  qps         queue pairs: state, PSNs, window, timers (* running), retries left\n"
      "  cqs         completion queues\n"
      "  srqs        shared receive queues\n"
      "  mrs         memory regions: size, key, and how the daemon accesses them\n"
      "  connections listeners and connections of librdmacm programs\n"
      "  lcores      dataplane threads\n"
      "  neighbours  peers whose MAC is known or being resolved\n"
      "A device name after WHAT selects the items of that device. `roci show WHAT --help` "
      "explains\n"
      "the columns. Permitted for the daemon's user and root only.";
  CLI::Option* const chosen =
      command
          ->add_option_function<std::string>(
              "WHAT", [options](const std::string& what) { options->what = what; },
              "Kind of items to show")
          ->check([](const std::string& what) {
            if (Kinds().contains(what)) return std::string();
            return "no such kind of items: " + what +
                   " (--help lists them; of a device: roci show devices DEV)";
          });
  command->add_option("DEV", options->device, "Show only items of this device (roci0, ...)");
  command->footer([chosen] {
    const bool known = !chosen->empty() && Kinds().contains(chosen->results().front());
    return known ? ExplainColumns(Kinds().at(chosen->results().front())) : kKinds;
  });
  command
      ->add_option("--timeout", options->timeout_s, "Longest time for the daemon's answer, seconds")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback(
      [options, &context] { context.exit_status = Show(*options, context.runtime_dir); });
}

}  // namespace roci::tools
