// roci top: queue pairs, devices and their rates, live
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "roce/work.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/answer_output.h"
#include "tools/show/manage_client.h"
#include "tools/top/terminal.h"
#include "tools/top/view.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Show devices and queue pairs with their rates, the busiest first. In a terminal, keys change the view:

  t r d w     order by packets sent, packets received, drops, or window (unacknowledged packets)
  n p         order by queue pair number, or program
  a           only queue pairs with packets, or all
  q           quit

RETRIES: retries left of those configured, and RNR retries left (7: without end); * waits for an RNR
timer. RETX/s: retransmitted packets. Without a terminal, print a block of lines per interval.
Permitted for the daemon's user and root only.)";

constexpr uint64_t kMostIntervalNs = 3'600 * roce::kNsPerSecond;
constexpr uint64_t kLeastIntervalNs = 50 * roce::kNsPerMs;

struct TopOptions {
  std::string interval = "1s";
  std::string order = "tx";
  uint64_t count = 0;  // 0: without end
  TopSettings view;
};

volatile std::sig_atomic_t is_interrupted = 0;
void Interrupt(int) { is_interrupted = 1; }

void Wake(int) {}

// Waiting that a signal ends, even one that comes just before.
class Waiting {
 public:
  Waiting() {
    sigemptyset(&signals_);
    const auto handle = [this](int signal, void (*handler)(int)) {
      struct sigaction action = {};
      action.sa_handler = handler;  // without SA_RESTART
      sigaction(signal, &action, nullptr);
      sigaddset(&signals_, signal);
    };
    handle(SIGINT, Interrupt);
    handle(SIGTERM, Interrupt);
    handle(SIGWINCH, Wake);
  }
  // Until the time, a key (if `for_keys`) or a signal.
  void Wait(uint64_t for_ns, bool for_keys) const {
    sigset_t before;
    sigprocmask(SIG_BLOCK, &signals_, &before);
    const timespec limit{static_cast<time_t>(for_ns / roce::kNsPerSecond),
                         static_cast<long>(for_ns % roce::kNsPerSecond)};
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (is_interrupted == 0) ppoll(&input, for_keys ? 1 : 0, &limit, &before);
    sigprocmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  sigset_t signals_{};
};

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * roce::kNsPerSecond +
         static_cast<uint64_t>(now.tv_nsec);
}

absl::StatusOr<TopSample> Take(const std::string& runtime_dir) {
  TopSample sample;
  sample.at_ns = Now();
  for (const auto& [kind, out] : {std::pair(control::ShowKind::kQps, &sample.qps),
                                  std::pair(control::ShowKind::kCounters, &sample.counters),
                                  std::pair(control::ShowKind::kLcores, &sample.lcores)}) {
    absl::StatusOr<nlohmann::json> answer = AskDaemon(runtime_dir, ShowRequest(kind));
    if (!answer.ok()) return answer.status();
    *out = *std::move(answer);
  }
  return sample;
}

// Applies a key. False: quit.
bool HandleKey(int key, TopSettings& view) {
  constexpr std::string_view kOrders = "trdwnp";  // of the orders, by their numbers
  if (const size_t order = kOrders.find(static_cast<char>(key)); order != kOrders.npos) {
    view.order = static_cast<TopOrder>(order);
  }
  if (key == 'a') view.only_active = !view.only_active;
  return key != 'q' && key != -1;
}

// Draws the view, and handles keys until the next sample is due. False: quit.
bool ShowUntil(uint64_t end_ns, const Waiting& waiting, const TopSample& before,
               const TopSample& now, TopSettings& view) {
  for (uint64_t time = Now(); is_interrupted == 0; time = Now()) {
    const TerminalSize size = Terminal::Size();
    view.lines = size.lines;
    view.columns = size.columns;
    Terminal::Draw(TopLines(before, now, view));
    if (time >= end_ns) return true;
    waiting.Wait(end_ns - time, /*for_keys=*/true);
    const int key = Terminal::ReadKey();
    if (key != 0 && !HandleKey(key, view)) return false;
  }
  return false;
}

// False: standard output cannot be written.
bool Print(const TopSample& before, const TopSample& now, const TopSettings& view) {
  for (const std::string& line : TopLines(before, now, view)) std::printf("%s\n", line.c_str());
  std::printf("\n");
  return std::fflush(stdout) == 0;
}

bool HasDevice(const TopSample& sample, const std::string& name) {
  return std::ranges::any_of(sample.counters, [&](const nlohmann::json& device) {
    return device.value("device", std::string()) == name;
  });
}

absl::Status Watch(TopOptions& options, const std::string& runtime_dir) {
  const uint64_t interval_ns = *ParseDuration(options.interval, kMostIntervalNs);
  absl::StatusOr<TopSample> before = Take(runtime_dir);
  if (!before.ok()) return before.status();
  if (const std::string& device = options.view.device;
      !device.empty() && !HasDevice(*before, device)) {
    return absl::NotFoundError("there is no device " + device);
  }
  const Waiting waiting;
  std::optional<Terminal> terminal;
  if (Terminal::IsThere()) terminal.emplace();
  TopSample now = *before;
  for (uint64_t number = 0;; ++number) {
    const uint64_t end_ns = now.at_ns + interval_ns;
    // The first sample has no rates yet.
    if (!terminal.has_value() && number != 0 && !Print(*before, now, options.view)) {
      return absl::OkStatus();  // main tells why
    }
    if (options.count != 0 && number >= options.count) return absl::OkStatus();
    if (terminal.has_value()) {
      if (!ShowUntil(end_ns, waiting, *before, now, options.view)) return absl::OkStatus();
    } else if (const uint64_t time = Now(); time < end_ns) {
      waiting.Wait(end_ns - time, /*for_keys=*/false);
    }
    if (is_interrupted != 0) return absl::OkStatus();
    absl::StatusOr<TopSample> next = Take(runtime_dir);
    if (is_interrupted != 0) return absl::OkStatus();
    if (!next.ok()) return next.status();
    before = std::move(now);
    now = *std::move(next);
  }
}

int Run(TopOptions& options, const std::string& runtime_dir) {
  const auto order = std::ranges::find(kTopOrderNames, options.order);
  options.view.order = static_cast<TopOrder>(order - std::begin(kTopOrderNames));
  const absl::Status status = Watch(options, runtime_dir);
  return status.ok() ? 0 : PrintFailure(status);
}

}  // namespace

void AddTopCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand("top", "Show devices and queue pairs live, with rates");
  command->footer(kManual);
  command->add_option("--interval", options->interval, "Time between samples: 200ms, 1s")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return ParseDuration(text, kMostIntervalNs).value_or(0) >= kLeastIntervalNs
                   ? std::string()
                   : text + " is not a time from 50ms to 3600s";
      });
  command->add_option("--sort", options->order, "Order: tx, rx, drops, window, qp, program")
      ->capture_default_str()
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kTopOrderNames), std::end(kTopOrderNames))));
  command->add_option("--device", options->view.device, "Only of this device");
  command->add_option("--program", options->view.program, "Only of programs with this name");
  command->add_flag("--active", options->view.only_active, "Only queue pairs with packets");
  command->add_option("--count", options->count, "End after N samples (0: never)")
      ->capture_default_str();
  command->callback(
      [options, &context] { context.exit_status = Run(*options, context.runtime_dir); });
}

}  // namespace roci::tools
