// roci impair DEV
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/manage_client.h"
#include "tools/show/tables.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Frames of device DEV are lost, delayed, and so on, until --clear. Probabilities are given as 1% or
0.01, times as 10us (ns, us, ms, s). The n-th frame meets the same fate in every run with the same
--seed (and the same number of lcores), but for what --rate does, which depends on time.

An impairment is for one direction, and with --qp or --opcode for some RoCE packets only; without,
for every frame, ARP and connection management included. One with the same direction and the same
choice of packets takes the place of that which is there; others are added (up to 16), and a frame
meets them in the order in which they were made. --clear removes all, those of a --direction, or
with --qp or --opcode the one for that choice of packets.

  --loss       frames that vanish
  --delay      all frames are held so long, in order
  --reorder    frames that are held --reorder-delay longer, so that those behind overtake them
  --duplicate  frames that come twice
  --corrupt    frames with one wrong bit, anywhere behind the Ethernet header
  --ecn        packets that become "congestion experienced", if their sender is capable of ECN
               (RFC 3168; perftest: --tclass 2)
  --rate       frames pass one after the other, in order, at so many bits per second (100kbit to
               1Tbit: kbit, Mbit, Gbit, Tbit, as tc-netem(8) has them; 1Gbit is a port of 1 Gb/s).
               A frame takes the time that it would on Ethernet: that of its bytes and of 24 more
               (frame check sequence, preamble, gap), 84 at least
  --rate-queue what may wait for the rate, together with the frame that is being sent; frames that do
               not fit are lost and counted (rate_dropped). In such bytes (65536, 256kB, 1MB; kB as
               in tc(8), 1024 bytes), or as the time in which they pass (1ms); at most 5s
  --rate-ecn   frames that find so much waiting (bytes or time) are marked as by --ecn, as a switch
               does: with congestion control on, senders slow down to the rate (docs/ports.md).
               40kB:200kB marks few from 40kB on, more with what waits up to 5% of the frames, and
               all from 200kB on; the second is five times the first if it is not given

A frame that is to be lost takes no time of --rate, one that comes twice takes it twice. --delay and
--reorder hold it behind the queue. The rate of an impairment is one for all lcores of the daemon. A
frame that several impairments with a rate choose waits for the one where it takes longest.

At most 2048 frames of a direction are held on an lcore; more are lost and counted as queue_full,
which small frames in a long --rate-queue come to. What is held when an impairment is removed or
replaced keeps its time, so that frames that come later overtake it.
`roci show ports` has the impairments of a device and what they have done.

Without any option but DEV, what is set is printed. Exit status: 0; 1 if the daemon refuses or is
not there; 2 for wrong usage.

Examples:
  roci impair roci0 --loss 1% --reorder 5% --seed 7
  roci impair roci0 --direction in --delay 50us
  roci impair roci0 --rate 10Gbit --rate-queue 1MB --rate-ecn 40kB:200kB
  roci impair roci0 --opcode '*ACKNOWLEDGE' --loss 10%
  roci impair roci0 --opcode '*ACKNOWLEDGE' --clear
  roci impair roci0 --clear)";

constexpr uint64_t kLeastRateBps = 100'000;  // as the daemon has it

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
  nlohmann::json request = {{"command", "impair"}, {"device", options.device}};
  if (!options.direction.empty()) request["direction"] = options.direction;
  if (options.clear || sets) AddSelection(options.selection, request);
  if (options.clear) {
    request["clear"] = true;
    return request;
  }
  if (!sets) return {{"command", "show"}, {"what", "ports"}};
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

// What `roci show ports` says of one device; null: there is no such device.
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
        AskDaemon(runtime_dir, {{"command", "show"}, {"what", "qps"}}, options.timeout_s);
    if (!qps.ok()) return qps.status();
    AddPeers(*qps, options.device, request);
  }
  return AskDaemon(runtime_dir, request, options.timeout_s);
}

// What the daemon says of the request, in the words of this command.
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
  // Says how, or to which frames, and nothing happens by it.
  const bool says_queue = !options.rate_queue.empty() || !options.rate_ecn.empty();
  const bool says_how = !options.reorder_delay.empty() || !options.seed.empty() || says_queue;
  const bool selects = !options.selection.qps.empty() || !options.selection.opcodes.empty();
  if (options.clear && (sets || says_how)) {
    std::fprintf(stderr, "roci: --clear goes with --direction, --qp and --opcode only\n");
    return 2;
  }
  if (!options.clear && !sets && (says_how || selects || !options.direction.empty())) {
    std::fprintf(stderr, "roci: what is to happen to the frames?\n");
    return 2;
  }
  if (says_queue && options.rate.empty()) {
    std::fprintf(stderr, "roci: --rate-queue and --rate-ecn go with --rate only\n");
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
    return ParseChance(text) ? std::string() : text + " is no probability (1%, 0.01)";
  });
}

void AddDurationOption(CLI::App& command, const char* name, std::string& out, const char* help) {
  command.add_option(name, out, help)->check([](const std::string& text) {
    return ParseDuration(text) ? std::string() : text + " is no time up to 5s (10us, 1.5ms)";
  });
}

std::string CheckQueue(const std::string& text) {
  const auto bytes = ParseQueue(text, 8'000'000'000);
  return bytes && *bytes != 0
             ? std::string()
             : text + " is no length of a queue in bytes (65536, 256kB) or time up to 5s (1ms)";
}

void AddRateOptions(CLI::App& command, ImpairOptions& options) {
  command.add_option("--rate", options.rate, "Bits per second at which frames pass: 10Gbit")
      ->check([](const std::string& text) {
        const auto rate_bps = ParseRate(text);
        return rate_bps && *rate_bps >= kLeastRateBps
                   ? std::string()
                   : text + " is no rate from 100kbit to 1Tbit (10Gbit, 500Mbit, 250000; bits)";
      });
  command
      .add_option("--rate-queue", options.rate_queue,
                  "What may wait for it, in bytes or time (default 1MB, or 5s if that is less)")
      ->check(CheckQueue);
  command
      .add_option("--rate-ecn", options.rate_ecn,
                  "So much waiting has frames marked: FROM or FROM:ALL, in bytes or time (default: "
                  "none is)")
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
  CLI::App* command = app.add_subcommand("impair", "Lose, delay, slow down, ... a device's frames");
  command->add_option("DEV", options->device, "The device: roci0")->required();
  command
      ->add_option("--direction", options->direction, "in or out (default out; with --clear: both)")
      ->check(CLI::IsMember({"in", "out"}));
  AddChanceOption(*command, "--loss", options->loss, "Probability of loss");
  AddDurationOption(*command, "--delay", options->delay, "Time that every frame is held");
  AddChanceOption(*command, "--reorder", options->reorder, "Probability of being overtaken");
  AddDurationOption(*command, "--reorder-delay", options->reorder_delay,
                    "Time that such a frame is held (default 100us)");
  AddChanceOption(*command, "--duplicate", options->duplicate, "Probability of coming twice");
  AddChanceOption(*command, "--corrupt", options->corrupt, "Probability of a wrong bit");
  AddChanceOption(*command, "--ecn", options->ecn, "Probability of a congestion mark");
  AddRateOptions(*command, *options);
  command->add_option("--seed", options->seed, "Of all chances (default 0)")
      ->check([](const std::string& text) {
        return ParseNumber(text, kMostInJson) ? std::string()
                                              : text + " is no number from 0 to 2^53";
      });
  AddSelectionOptions(*command, options->selection);
  command->add_flag("--clear", options->clear,
                    "Remove impairments: all, or those of --direction, --qp, --opcode");
  command->add_flag("--json", options->json, "JSON, for programs");
  command->footer(kManual);
  command->callback(
      [options, &context] { context.exit_status = Impair(*options, context.runtime_dir); });
}

}  // namespace roci::tools
