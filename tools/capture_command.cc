// roci capture DEV -w FILE
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "control/loop/unique_fd.h"
#include "dataplane/base/limits.h"
#include "tools/commands.h"
#include "tools/link/block_copy.h"
#include "tools/link/selection.h"
#include "tools/show/answer_output.h"
#include "tools/show/deadline.h"
#include "tools/show/manage_client.h"

namespace roci::tools {
namespace {

constexpr char kManual[] =
    R"(Write the frames that device DEV sends and receives as pcapng: all frames, or with --qp and
--opcode the RoCE packets that match one of each. Each packet has its direction and the time of its
burst in nanoseconds. Frames are captured at the link: sent frames after the impairments of `roci
impair`, received frames before them.

A capture ends after --count or --seconds, at SIGINT (Ctrl-C), SIGTERM or SIGHUP, when the reader of
a pipe has closed it, or when the daemon ends. The file is complete in each case.

A capture does not slow down traffic. If the disk or the reader is too slow, frames are dropped from
the capture and counted. The statistics block at the file's end and the last line on standard error
have the number, unless the daemon ended the capture.

Exit status: 0; 1 if the daemon refuses, is not running or ends, or if FILE cannot be written; 2 for
wrong usage.

Examples:
  roci capture roci0 -w traffic.pcapng
  roci capture roci0 -w - | tshark -r -
  roci capture roci0 --opcode '*ACKNOWLEDGE' --count 100 -w - | roci decode -
  roci capture roci0 --qp 0x0012a4 --seconds 10 -w qp.pcapng)";

struct CaptureOptions {
  std::string device;
  std::string file;
  std::string direction = "both";
  std::string count;
  double seconds = 0;
  uint32_t snap_length = 0;
  int timeout_s = 10;
  Selection selection;
};

absl::StatusOr<nlohmann::json> RequestOf(const CaptureOptions& options,
                                         const std::string& runtime_dir) {
  nlohmann::json request = {{"command", control::kCaptureCommand},
                            {"device", options.device},
                            {"direction", options.direction},
                            {"snap_length", options.snap_length}};
  if (!options.count.empty()) request["count"] = *ParseNumber(options.count, kMostInJson);
  AddSelection(options.selection, request);
  if (!options.selection.qps.empty() && options.direction != "in") {
    const absl::StatusOr<nlohmann::json> qps =
        AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kQps), options.timeout_s);
    if (!qps.ok()) return qps.status();
    AddPeers(*qps, options.device, request);
  }
  return request;
}

// Copies until the daemon ends the stream. At a signal, at the deadline, or when the output has no
// reader any more, asks the daemon to end it. False: an error of the socket.
bool Copy(int socket, int signals, int output, Deadline deadline, BlockCopy& copy) {
  bool asked = false;
  char buffer[65536];
  for (;;) {
    // A pipe without a reader gives POLLERR (pipe(7)), even if no frames are written.
    pollfd fds[] = {
        {socket, POLLIN, 0}, {asked ? -1 : signals, POLLIN, 0}, {asked ? -1 : output, 0, 0}};
    const int ready = poll(fds, 3, asked ? -1 : WaitMs(deadline));
    if (ready < 0 && errno != EINTR) return false;
    const bool is_over = !asked && std::chrono::steady_clock::now() >= deadline;
    const bool is_signalled = (fds[1].revents & POLLIN) != 0;
    const bool is_unread = (fds[2].revents & POLLERR) != 0 || copy.failed();
    if (!asked && (is_over || is_signalled || is_unread)) {
      shutdown(socket, SHUT_WR);
      asked = true;
    }
    if ((fds[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    const ssize_t count = recv(socket, buffer, sizeof(buffer), 0);
    if (count < 0) return false;
    if (count == 0) return true;
    copy.Add({buffer, static_cast<size_t>(count)});
  }
}

int Capture(const CaptureOptions& options, const std::string& runtime_dir) {
  const bool to_stdout = options.file == "-";
  // Block signals before the request, so that the capture always ends in order.
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const control::UniqueFd signals(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));

  const absl::StatusOr<nlohmann::json> request = RequestOf(options, runtime_dir);
  const auto socket = request.ok() ? OpenStream(runtime_dir, *request, options.timeout_s)
                                   : absl::StatusOr<control::UniqueFd>(request.status());
  if (!socket.ok()) return PrintFailure(socket.status());
  std::FILE* const file = to_stdout ? stdout : std::fopen(options.file.c_str(), "wb");
  if (file == nullptr) {
    std::fprintf(stderr, "roci: %s: %s\n", options.file.c_str(), std::strerror(errno));
    return 1;
  }
  Deadline deadline = Deadline::max();
  if (options.seconds > 0) {
    deadline = std::chrono::steady_clock::now() +
               std::chrono::milliseconds(static_cast<int64_t>(options.seconds * 1000));
  }
  BlockCopy copy(file);
  const bool complete = Copy(socket->get(), signals.get(), fileno(file), deadline, copy);
  const bool closed = to_stdout || std::fclose(file) == 0;
  if (copy.has_statistics()) {
    std::fprintf(stderr, "%" PRIu64 " frames captured, %" PRIu64 " dropped\n", copy.packets(),
                 copy.dropped());
  } else {
    std::fprintf(stderr, "%" PRIu64 " frames captured; number of dropped frames unknown\n",
                 copy.packets());
  }
  // The reader of standard output may close it early: not an error.
  if ((copy.failed() && !to_stdout) || !closed) {
    std::fprintf(stderr, "roci: cannot write %s\n", options.file.c_str());
    return 1;
  }
  if (!complete || !copy.has_statistics()) {
    std::fprintf(stderr, "roci: the daemon ended the capture\n");
    return 1;
  }
  return 0;
}

}  // namespace

void AddCaptureCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<CaptureOptions>();
  CLI::App* command = app.add_subcommand("capture", "Write frames of a device as pcapng");
  command->add_option("DEV", options->device, "The device: roci0")->required();
  command->add_option("-w,--write", options->file, "The file, or - for standard output")
      ->type_name("FILE")
      ->required();
  command->add_option("--direction", options->direction, "in, out or both")
      ->check(CLI::IsMember({"in", "out", "both"}))
      ->capture_default_str();
  AddSelectionOptions(*command, options->selection);
  command->add_option("-c,--count", options->count, "Number of frames after which to end")
      ->check([](const std::string& text) {
        return ParseNumber(text, kMostInJson).value_or(0) != 0
                   ? std::string()
                   : text + " is not a number of frames from 1 to 2^53";
      });
  command->add_option("--seconds", options->seconds, "Time after which to end, seconds")
      ->check([](const std::string& text) {
        double seconds = 0;  // NaN fails both comparisons
        return absl::SimpleAtod(text, &seconds) && seconds >= 0.001 && seconds <= 1e6
                   ? std::string()
                   : text + " is not a number of seconds from 0.001 to 1000000";
      });
  command->add_option("-s,--snaplen", options->snap_length, "Bytes to keep of each frame")
      ->check(CLI::Range(1, int{dataplane::kMaxSnapLengthBytes}));
  command->footer(kManual);
  command->callback(
      [options, &context] { context.exit_status = Capture(*options, context.runtime_dir); });
}

}  // namespace roci::tools
