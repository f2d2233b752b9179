// roci show WHAT
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_format.h"
#include "tools/commands.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"
#include "tools/show/terms.h"

namespace roci::tools {
namespace {

using control::ShowKind;

struct ShowOptions {
  ShowKind kind = ShowKind::kDevices;
  std::string device;  // empty: all
  bool json = false;
  int timeout_s = 10;
};

// A line of --help for each kind.
const char* Describe(ShowKind kind) {
  switch (kind) {
    case ShowKind::kDevices:
      return "devices, their addresses, and use of their limits (default)";
    case ShowKind::kPorts:
      return "ports, their non-zero counters, and drop reasons";
    case ShowKind::kCounters:
      return "as ports, with all counters";
    case ShowKind::kApps:
      return "programs that have a device open";
    case ShowKind::kQps:
      return "queue pairs: state, PSNs, window, timers (* running), retries left";
    case ShowKind::kCqs:
      return "completion queues";
    case ShowKind::kSrqs:
      return "shared receive queues";
    case ShowKind::kMrs:
      return "memory regions: size, key, and how the daemon accesses them";
    case ShowKind::kConnections:
      return "listeners and connections of librdmacm programs";
    case ShowKind::kLcores:
      return "dataplane threads";
    case ShowKind::kNeighbours:
      return "peers whose MAC is known or being resolved";
  }
  return "";
}

std::string DescribeKinds() {
  std::string text = "WHAT is one of\n";
  for (const std::string_view name : control::kShowKindNames) {
    text += absl::StrFormat("  %-11s %s\n", name, Describe(*control::FindShowKind(name)));
  }
  return text +
         "A device name after WHAT selects the items of that device. `roci show WHAT --help` "
         "explains\n"
         "the columns. Permitted for the daemon's user and root only.";
}

// The kind that an argument names: its name, or (of one item) without the "s".
std::optional<ShowKind> KindOf(const std::string& argument) {
  const std::optional<ShowKind> kind = control::FindShowKind(argument);
  if (kind) return kind;
  const std::optional<ShowKind> of_one = control::FindShowKind(argument + "s");
  const bool is_list = of_one == ShowKind::kCounters || of_one == ShowKind::kNeighbours;
  return is_list ? std::nullopt : of_one;
}

absl::StatusOr<nlohmann::json> Ask(const ShowOptions& options, const std::string& runtime_dir) {
  const nlohmann::json request = ShowRequest(options.kind);
  absl::StatusOr<nlohmann::json> items = AskDaemon(runtime_dir, request, options.timeout_s);
  if (options.kind != ShowKind::kLcores || options.json || !items.ok()) return items;
  // The current load is the difference between two samples.
  constexpr auto kInterval = std::chrono::milliseconds(250);
  std::this_thread::sleep_for(kInterval);
  absl::StatusOr<nlohmann::json> later = AskDaemon(runtime_dir, request, options.timeout_s);
  return later.ok() ? LcoresSince(*items, *std::move(later)) : later;
}

int FailUsage(const std::string& message) {
  std::fprintf(stderr, "roci: %s\n", message.c_str());
  return 2;
}

// The error in the choice of a device; empty: none.
absl::StatusOr<std::string> FaultOfDevice(const ShowOptions& options,
                                          const std::string& runtime_dir) {
  if (options.device.empty()) return std::string();
  const absl::StatusOr<nlohmann::json> devices =
      AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kDevices), options.timeout_s);
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
  if (!options.device.empty() && options.kind == ShowKind::kLcores) {
    return FailUsage("lcores serve all devices; leave '" + options.device + "' out");
  }
  const absl::StatusOr<std::string> fault = FaultOfDevice(options, runtime_dir);
  if (!fault.ok()) return PrintFailure(fault.status());
  if (!fault->empty()) return FailUsage(*fault);
  absl::StatusOr<nlohmann::json> items = Ask(options, runtime_dir);
  if (items.ok() && !options.device.empty()) items = OfDevice(*std::move(items), options.device);
  const std::string what(control::NameOf(options.kind));
  return PrintAnswer(items, options.json,
                     [&](const auto& shown) { return FormatItems(what, shown); });
}

}  // namespace

void AddShowCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Show objects and counters of the daemon");
  CLI::Option* const chosen =
      command
          ->add_option_function<std::string>(
              "WHAT", [options](const std::string& what) { options->kind = *KindOf(what); },
              "Kind of items to show")
          ->check([](const std::string& what) {
            if (KindOf(what)) return std::string();
            return "no such kind of items: " + what +
                   " (--help lists them; of a device: roci show devices DEV)";
          });
  command->add_option("DEV", options->device, "Show only items of this device (roci0, ...)");
  command->footer([chosen] {
    const auto kind = chosen->empty() ? std::nullopt : KindOf(chosen->results().front());
    return kind ? ExplainColumns(std::string(control::NameOf(*kind))) : DescribeKinds();
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
