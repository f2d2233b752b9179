// roci impair DEV
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "dataplane/types/impairment_settings.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Lose, delay, duplicate, ... frames of device DEV until --clear. Probabilities are written as 1%
or 0.01, times as 10us (ns, us, ms, s). With the same --seed and the same number of lcores, the n-th
frame is treated in the same way in every run; only --rate depends on time.

An impairment applies to one direction, and to all frames including ARP and connection management;
with --qp or --opcode to the selected RoCE packets only. A new impairment replaces one with the same
direction and selection; others are added (up to 16). They apply to a frame in the order of their
creation. --clear removes all, those of --direction, or with --qp or --opcode the one with that
selection.

  --loss       probability of loss
  --delay      delay of every frame; the order is kept
  --reorder    probability that a frame is held --reorder-delay longer, so that later frames
               overtake it
  --duplicate  probability of duplication
  --corrupt    probability of one inverted bit, anywhere after the Ethernet header
  --ecn        probability of an ECN mark (CE), for packets that are ECN capable (RFC 3168; perftest:
               --tclass 2)
  --rate       bandwidth of the link, 100kbit to 1Tbit (kbit, Mbit, Gbit, Tbit as in tc-netem(8)).
               Frames are sent one after the other, in order. A frame takes the time of its bytes and
               of 24 more, as on Ethernet (frame check sequence, preamble, gap); at least 84 bytes
  --rate-queue length of the queue before --rate, including the frame that is being sent; frames that
               do not fit are dropped and counted (rate_dropped). In such bytes (65536, 256kB, 1MB; a
               kB has 1024 bytes, as in tc(8)) or as a time at the rate (1ms); at most 5s
  --rate-ecn   ECN marking of the queue, as in a switch: with congestion control, senders slow down
               to the rate (docs/networks.md). FROM:ALL in bytes or time: 40kB:200kB marks frames with a
               probability that grows from 0 at a queue of 40kB to 5%, and all frames from 200kB on.
               Default of ALL: five times FROM

Lost frames take no time of --rate, duplicated frames take it twice. --delay and --reorder apply
after the queue. All lcores of the daemon share the rate of an impairment. If several impairments
with a rate select a frame, it is sent when the last of them permits it.

An lcore holds at most 2048 frames of a direction; more are dropped and counted as queue_full, for
example small frames in a long --rate-queue. Frames that are held when an impairment is removed or
replaced keep their time, so that later frames can overtake them.
`roci show ports` prints the impairments of a device and their counters.

With DEV only, print the impairments. Exit status: 0; 1 if the daemon refuses or is not
running; 2 for wrong usage.

Examples:
  roci impair roci0 --loss 1% --reorder 5% --seed 7
  roci impair roci0 --direction in --delay 50us
  roci impair roci0 --rate 10Gbit --rate-queue 1MB --rate-ecn 40kB:200kB
  roci impair roci0 --opcode '*ACKNOWLEDGE' --loss 10%
  roci impair roci0 --opcode '*ACKNOWLEDGE' --clear
  roci impair roci0 --clear)";

struct ImpairOptions {
  std::string device;
  std::string direction;
  std::string loss, duplicate, corrupt, reorder, ecn;
  std::string delay, reorder_delay;
  std::string rate, rate_queue, rate_ecn;
  std::string seed;
  bool clear = false;
  bool json = false;
  int timeout_s = 10;
  Selection selection;
};

void AddRate(const ImpairOptions& options, nlohmann::json& request) {
  if (options.rate.empty()) return;
  const uint64_t rate_bps = *ParseRate(options.rate);
  request["rate_bps"] = rate_bps;
  if (!options.rate_queue.empty()) {
    request["rate_queue_bytes"] = *ParseQueue(options.rate_queue, rate_bps);
  }
  if (!options.rate_ecn.empty()) {
    const size_t colon = options.rate_ecn.find(':');
    request["rate_ecn_bytes"] = *ParseQueue(options.rate_ecn.substr(0, colon), rate_bps);
    if (colon != std::string::npos) {
      request["rate_ecn_all_bytes"] = *ParseQueue(options.rate_ecn.substr(colon + 1), rate_bps);
    }
  }
}

nlohmann::json RequestOf(const ImpairOptions& options, bool sets) {
  nlohmann::json request = {{"command", control::kImpairCommand}, {"device", options.device}};
  if (!options.direction.empty()) request["direction"] = options.direction;
  if (options.clear || sets) AddSelection(options.selection, request);
  if (options.clear) {
    request["clear"] = true;
    return request;
  }
  if (!sets) return ShowRequest(control::ShowKind::kPorts);
  const auto add_chance = [&](const char* name, const std::string& text) {
    if (!text.empty()) request[name] = *ParseChance(text);
  };
  add_chance("loss", options.loss);
  add_chance("duplicate", options.duplicate);
  add_chance("corrupt", options.corrupt);
  add_chance("reorder", options.reorder);
  add_chance("ecn", options.ecn);
  if (!options.delay.empty()) request["delay_ns"] = *ParseDuration(options.delay);
  if (!options.reorder_delay.empty()) request["reorder_ns"] = *ParseDuration(options.reorder_delay);
  AddRate(options, request);
  if (!options.seed.empty()) request["seed"] = *ParseNumber(options.seed, kMostInJson);
  return request;
}

// The impairments of one device in `roci show ports`; null: there is no such device.
nlohmann::json ImpairmentsOf(const nlohmann::json& ports, const std::string& device) {
  for (const nlohmann::json& port : ports) {
    if (port.value("device", "") == device) return port["impairments"];
  }
  return nullptr;
}

absl::StatusOr<nlohmann::json> Ask(const ImpairOptions& options, bool sets,
                                   const std::string& runtime_dir) {
  nlohmann::json request = RequestOf(options, sets);
  if (sets && !options.selection.qps.empty() && options.direction != "in") {
    const absl::StatusOr<nlohmann::json> qps =
        AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kQps), options.timeout_s);
    if (!qps.ok()) return qps.status();
    AddPeers(*qps, options.device, request);
  }
  return AskDaemon(runtime_dir, request, options.timeout_s);
}

// The daemon's error message, with its JSON names replaced by options of this command.
std::string InOptions(absl::string_view message) {
  return absl::StrReplaceAll(message, {{"\"rate_bps\"", "--rate"},
                                       {"rate_queue_bytes", "--rate-queue"},
                                       {"rate_ecn_all_bytes", "--rate-ecn"},
                                       {"rate_ecn_bytes", "--rate-ecn"},
                                       {"delay_ns", "--delay"},
                                       {"reorder_ns", "--reorder-delay"}});
}

int Impair(const ImpairOptions& options, const std::string& runtime_dir) {
  const bool sets = !(options.loss + options.duplicate + options.corrupt + options.reorder +
                      options.ecn + options.delay + options.rate)
                         .empty();
  // These options alone impair nothing.
  const bool says_queue = !options.rate_queue.empty() || !options.rate_ecn.empty();
  const bool says_how = !options.reorder_delay.empty() || !options.seed.empty() || says_queue;
  const bool selects = !options.selection.qps.empty() || !options.selection.opcodes.empty();
  if (options.clear && (sets || says_how)) {
    std::fprintf(stderr,
                 "roci: --clear can be combined with --direction, --qp and --opcode only\n");
    return 2;
  }
  if (!options.clear && !sets && (says_how || selects || !options.direction.empty())) {
    std::fprintf(stderr,
                 "roci: no impairment is given: add --loss, --delay, --rate, ... or --clear\n");
    return 2;
  }
  if (says_queue && options.rate.empty()) {
    std::fprintf(stderr, "roci: --rate-queue and --rate-ecn need --rate\n");
    return 2;
  }
  absl::StatusOr<nlohmann::json> answer = Ask(options, sets, runtime_dir);
  if (answer.ok() && !options.clear && !sets) answer = ImpairmentsOf(*answer, options.device);
  if (answer.ok() && answer->is_null()) {
    answer = absl::NotFoundError("there is no device " + options.device);
  }
  if (!answer.ok()) {
    std::fprintf(stderr, "roci: %s\n", InOptions(answer.status().message()).c_str());
    return 1;
  }
  const std::string text = options.json ? answer->dump(2) + "\n" : FormatImpairments(*answer, "");
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

void AddChanceOption(CLI::App& command, const char* name, std::string& out, const char* help) {
  command.add_option(name, out, help)->check([](const std::string& text) {
    return ParseChance(text) ? std::string() : text + " is not a probability (1%, 0.01)";
  });
}

void AddDurationOption(CLI::App& command, const char* name, std::string& out, const char* help) {
  command.add_option(name, out, help)->check([](const std::string& text) {
    return ParseDuration(text) ? std::string() : text + " is not a time up to 5s (10us, 1.5ms)";
  });
}

std::string CheckQueue(const std::string& text) {
  const auto bytes = ParseQueue(text, 8'000'000'000);
  return bytes && *bytes != 0
             ? std::string()
             : text + " is not a queue length in bytes (65536, 256kB) or time up to 5s (1ms)";
}

void AddRateOptions(CLI::App& command, ImpairOptions& options) {
  command.add_option("--rate", options.rate, "Bandwidth of the link in bits per second: 10Gbit")
      ->check([](const std::string& text) {
        const auto rate_bps = ParseRate(text);
        return rate_bps && *rate_bps >= dataplane::BottleneckSettings::kLeastRateBps
                   ? std::string()
                   : text + " is not a rate from 100kbit to 1Tbit (10Gbit, 500Mbit, 250000; bits)";
      });
  command
      .add_option("--rate-queue", options.rate_queue,
                  "Queue length in bytes or time (default 1MB, or 5s if that is less)")
      ->check(CheckQueue);
  command
      .add_option("--rate-ecn", options.rate_ecn,
                  "Queue lengths for ECN marking: FROM or FROM:ALL, in bytes or time (default: no "
                  "marks)")
      ->check([](const std::string& text) {
        const size_t colon = text.find(':');
        const std::string wrong = CheckQueue(text.substr(0, colon));
        return wrong.empty() && colon != std::string::npos ? CheckQueue(text.substr(colon + 1))
                                                           : wrong;
      });
}

}  // namespace

void AddImpairCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ImpairOptions>();
  CLI::App* command =
      app.add_subcommand("impair", "Lose, delay, rate-limit, ... frames of a device");
  command->add_option("DEV", options->device, "The device: roci0")->required();
  command
      ->add_option("--direction", options->direction, "in or out (default out; with --clear: both)")
      ->check(CLI::IsMember({"in", "out"}));
  AddChanceOption(*command, "--loss", options->loss, "Probability of loss");
  AddDurationOption(*command, "--delay", options->delay, "Delay of every frame");
  AddChanceOption(*command, "--reorder", options->reorder, "Probability of reordering");
  AddDurationOption(*command, "--reorder-delay", options->reorder_delay,
                    "Additional delay of reordered frames (default 100us)");
  AddChanceOption(*command, "--duplicate", options->duplicate, "Probability of duplication");
  AddChanceOption(*command, "--corrupt", options->corrupt, "Probability of a bit error");
  AddChanceOption(*command, "--ecn", options->ecn, "Probability of an ECN mark (CE)");
  AddRateOptions(*command, *options);
  command->add_option("--seed", options->seed, "Seed of all probabilities (default 0)")
      ->check([](const std::string& text) {
        return ParseNumber(text, kMostInJson) ? std::string()
                                              : text + " is not a number from 0 to 2^53";
      });
  AddSelectionOptions(*command, options->selection);
  command->add_flag("--clear", options->clear,
                    "Remove impairments: all, or those of --direction, --qp, --opcode");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kManual);
  command->callback(
      [options, &context] { context.exit_status = Impair(*options, context.runtime_dir); });
}

}  // namespace roci::tools
