// roci trace QP|DEV
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "control/loop/unique_fd.h"
#include "dataplane/types/trace_record.h"
#include "tools/commands.h"
#include "tools/link/selection.h"
#include "tools/show/deadline.h"
#include "tools/show/manage_client.h"
#include "tools/trace/trace_chrome.h"
#include "tools/trace/trace_text.h"

namespace roci::tools {
namespace {

using dataplane::TraceKind;
using dataplane::TraceRecord;

constexpr char kManual[] =
    R"(Print a line for each event of queue pairs (post, packet, completion, ...) while programs run. QP is a
queue pair's number, as in `roci show qps`, or DEV/NUMBER if several devices have that number. If its peer
is a queue pair of this daemon, the peer is traced too. DEV is a device: all of its queue pairs are traced,
also those that are created later. Name several to see both ends.

    0.001234 roci0/18       post SEND wr_id=7 len=64 signaled
    0.001234 roci0/18       -> RC_SEND_ONLY psn=1041 len=64 to_qp=20 ack_req
    0.001240 roci1/20       <- RC_SEND_ONLY psn=1041 len=64 ack_req
    0.001240 roci1/20       complete RECV wr_id=3 status=SUCCESS len=64

A line has the seconds since the start, the queue pair, and what happened:
  post       the daemon has seen a work request, as the program wrote it; a receive is seen when the queue pair
             needs it. Posts to shared receive queues and tag lists have no lines
  -> and <-  a packet that the queue pair sent, before the faults and impairments of its device, or received,
             after them. `again` marks a PSN that was sent before; ce is an ECN mark
  complete   an entry of a completion queue. An unsignaled request that succeeds has none, nor has tag matching
  timer      no acknowledgement came in time, or a receiver was not ready (rnr): requests are repeated
  event      an asynchronous event of the queue pair
  state      the queue pair has changed its state, or is DESTROYED
Times are those of the daemon's loop, which reads the clock once a round: lines of one round have one time, and
are in the order in which things happened.

A trace does not slow down the daemon: if DEV does more than the terminal, the disk or the reader takes, lines
are left out, and a line says how many. A device has one trace at a time. A trace ends after --count or --for,
when all queue pairs that it follows are destroyed, when the reader of a pipe has closed it, and at SIGINT
(Ctrl-C), SIGTERM or SIGHUP, with what is left; a second signal ends it at once. The last line on standard
error has the numbers of records and lost records. Permitted for the daemon's user and root only.

Exit status: 0; 1 if the daemon refuses, is not running or ends, or if FILE cannot be written; 2 for wrong usage.

Examples:
  roci trace 18
  roci trace roci0 roci1 --kind complete --kind event
  roci trace roci0 --opcode '*ACK*' --for 10s | less
  roci trace 18 --count 1000 --chrome trace.json     # for chrome://tracing or ui.perfetto.dev
  ssh HOST roci trace --json roci0 | jq 'select(.status != "SUCCESS" and .kind == "complete")')";

struct TraceOptions {
  std::vector<std::string> targets;
  std::vector<std::string> kinds;
  std::vector<std::string> opcodes;
  std::string count;
  std::string duration;
  std::string chrome;
  bool json = false;
  bool one_end = false;
};

struct Target {
  std::string device;
  std::vector<uint32_t> qps;  // empty: all
};

absl::Status AddTarget(const std::string& device, std::optional<uint32_t> qp,
                       std::vector<Target>& targets) {
  auto it = std::ranges::find(targets, device, &Target::device);
  if (it == targets.end()) {
    targets.push_back({device, {}});
    if (qp.has_value()) targets.back().qps.push_back(*qp);
    return absl::OkStatus();
  }
  if (it->qps.empty() || !qp.has_value()) {
    if (!qp.has_value()) it->qps.clear();
    return absl::OkStatus();
  }
  if (std::ranges::find(it->qps, *qp) != it->qps.end()) return absl::OkStatus();
  if (it->qps.size() == dataplane::TraceSettings::kMaxQpns) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", dataplane::TraceSettings::kMaxQpns,
                                                   " queue pairs of a device can be traced"));
  }
  it->qps.push_back(*qp);
  return absl::OkStatus();
}

// The connected queue pair of this daemon at the other end; null: none.
const nlohmann::json* FindPeer(const nlohmann::json& shown, const nlohmann::json& row) {
  if (row["remote_qpn"] == 0 || row["remote"] == "::" || row["type"] == "UD") return nullptr;
  for (const nlohmann::json& other : shown) {
    if (other["qpn"] == row["remote_qpn"] && other["local"] == row["remote"] &&
        other["remote_qpn"] == row["qpn"]) {
      return &other;
    }
  }
  return nullptr;
}

// "18", "0x12" or "roci0/18".
absl::Status AddQueuePair(const nlohmann::json& shown, const std::string& text, bool one_end,
                          std::vector<Target>& targets) {
  const size_t slash = text.find('/');
  const std::string device = slash == text.npos ? "" : text.substr(0, slash);
  const auto number = ParseNumber(text.substr(slash == text.npos ? 0 : slash + 1), roce::kMask24);
  const nlohmann::json* found = nullptr;
  for (const nlohmann::json& row : shown) {
    if (row["qpn"] != *number || (!device.empty() && row["device"] != device)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there are queue pairs ", (*found)["device"].get<std::string>(), "/", *number, " and ",
          row["device"].get<std::string>(), "/", *number, ": name one of them"));
    }
    found = &row;
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no queue pair ", text, "; `roci show qps` lists them"));
  }
  const absl::Status added = AddTarget((*found)["device"], (*found)["qpn"], targets);
  const nlohmann::json* const peer = one_end ? nullptr : FindPeer(shown, *found);
  if (!added.ok() || peer == nullptr) return added;
  return AddTarget((*peer)["device"], (*peer)["qpn"], targets);
}

bool IsQueuePair(const std::string& text) {
  const size_t slash = text.find('/');
  return ParseNumber(text.substr(slash == text.npos ? 0 : slash + 1), roce::kMask24).has_value();
}

absl::StatusOr<std::vector<Target>> FindTargets(const TraceOptions& options,
                                                const std::string& runtime_dir) {
  std::vector<Target> targets;
  nlohmann::json shown;
  if (std::ranges::any_of(options.targets, IsQueuePair)) {
    const auto qps = AskDaemon(runtime_dir, ShowRequest(control::ShowKind::kQps));
    if (!qps.ok()) return qps.status();
    shown = *qps;
  }
  for (const std::string& text : options.targets) {
    const absl::Status added = IsQueuePair(text)
                                   ? AddQueuePair(shown, text, options.one_end, targets)
                                   : AddTarget(text, std::nullopt, targets);
    if (!added.ok()) return added;
  }
  return targets;
}

nlohmann::json RequestOf(const TraceOptions& options, const std::vector<Target>& targets) {
  nlohmann::json request = {{"command", control::kTraceCommand}};
  for (const Target& target : targets) {
    nlohmann::json asked = {{"device", target.device}};
    if (!target.qps.empty()) asked["qps"] = target.qps;
    request["targets"].push_back(std::move(asked));
  }
  if (!options.kinds.empty()) request["kinds"] = options.kinds;
  return request;
}

std::string_view NameOf(TraceKind kind) {
  return control::kTraceKindNames[static_cast<size_t>(kind)];
}

// Prints records as they come.
class Printer {
 public:
  Printer(const TraceOptions& options, const std::vector<Target>& targets, std::FILE* file)
      : is_json_(options.json),
        is_chrome_(!options.chrome.empty()),
        wants_states_(options.kinds.empty() ||
                      std::ranges::find(options.kinds, NameOf(TraceKind::kState)) !=
                          options.kinds.end()),
        file_(file) {
    for (const Target& target : targets) {
      for (const uint32_t qp : target.qps) {
        awaited_.emplace(static_cast<uint8_t>(devices_.size()), qp);
      }
      follows_devices_ |= target.qps.empty();
      devices_.push_back(target.device);
    }
    if (!options.count.empty()) left_ = *ParseNumber(options.count, kMostInJson);
    for (const std::string& text : options.opcodes) {
      for (const uint32_t opcode : FindOpcodes(text)) opcodes_.set(opcode);
    }
  }

  // False: it is no trace of this version.
  bool Add(std::string_view bytes) {
    in_.append(bytes);
    size_t taken = 0;
    if (text_ == nullptr) {
      dataplane::TraceStreamHeader header;
      if (in_.size() < sizeof(header)) return true;
      std::memcpy(&header, in_.data(), taken = sizeof(header));
      if (header.magic != dataplane::TraceStreamHeader::kMagic ||
          header.version != dataplane::kTraceVersion ||
          header.record_bytes != sizeof(TraceRecord)) {
        return false;
      }
      text_ = std::make_unique<TraceText>(devices_, header.start_ns);
      chrome_ = std::make_unique<TraceChrome>(*text_);
    }
    for (; in_.size() - taken >= sizeof(TraceRecord) && !has_all(); taken += sizeof(TraceRecord)) {
      TraceRecord record;
      std::memcpy(&record, in_.data() + taken, sizeof(record));
      Print(record);
    }
    in_.erase(0, taken);
    Write();
    return true;
  }
  void Finish() {
    if (is_chrome_ && chrome_ != nullptr) chrome_->Finish(out_);
    Write();
  }

  // It has all that was asked for, or nothing comes any more.
  bool has_all() const { return left_ == 0 || (awaited_.empty() && !follows_devices_); }
  // errno of the first write that failed, or 0.
  int error() const { return error_; }
  uint64_t records() const { return records_; }
  uint64_t lost() const { return lost_; }

 private:
  bool IsLeftOut(const TraceRecord& record) const {
    return record.kind == TraceKind::kPacket && opcodes_.any() &&
           !opcodes_.test(std::to_integer<size_t>(record.packet.headers[0]));
  }
  // The end of a queue pair that was named is reported always.
  bool IsUnasked(const TraceRecord& record) {
    if (record.kind != TraceKind::kState) return false;
    if (record.state.to == dataplane::TraceState::kDestroyed) {
      awaited_.erase({record.device, record.qpn});
    }
    return !wants_states_;
  }
  void Print(const TraceRecord& record) {
    if (record.kind > TraceKind::kLost || IsUnasked(record) || IsLeftOut(record)) return;
    if (record.kind == TraceKind::kLost) {
      lost_ += record.lost.records;
    } else {
      ++records_;
      --left_;
    }
    if (is_chrome_) return chrome_->Append(record, out_);
    is_json_ ? text_->AppendJson(record, out_) : text_->AppendLine(record, out_);
  }
  void Write() {
    const bool is_written = std::fwrite(out_.data(), 1, out_.size(), file_) == out_.size();
    if ((!is_written || std::fflush(file_) != 0) && error_ == 0) error_ = errno;
    out_.clear();
  }

  const bool is_json_;
  const bool is_chrome_;
  const bool wants_states_;
  std::vector<std::string> devices_;
  bool follows_devices_ = false;
  std::set<std::pair<uint8_t, uint32_t>> awaited_;  // device and number of named queue pairs
  std::FILE* const file_;
  std::bitset<256> opcodes_;  // none: all
  std::unique_ptr<TraceText> text_;
  std::unique_ptr<TraceChrome> chrome_;
  std::string in_;
  std::string out_;
  uint64_t left_ = UINT64_MAX;
  uint64_t records_ = 0;
  uint64_t lost_ = 0;
  int error_ = 0;
};

enum class Outcome { kDone, kDaemonEnded, kNoTrace };

// Readable after the first signal that ends the trace.
int end_requests = -1;

void RequestEnd(int) {
  const int before = errno;
  const uint64_t one = 1;
  if (write(end_requests, &one, sizeof(one)) < 0) {
    // It is readable already.
  }
  errno = before;
}

// The first signal asks for an end in order, which takes as long as the reader of the output does;
// the second one has its default effect. An ignored SIGHUP (nohup(1)) stays so; shells ignore
// SIGINT for commands in the background, which `kill -INT` ends all the same.
control::UniqueFd CatchSignals() {
  control::UniqueFd requests(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  end_requests = requests.get();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = RequestEnd;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);
  return requests;
}

// Prints until the end. Asks the daemon for what is left at a signal, at the deadline, and when the
// output has no reader.
Outcome Follow(int socket, int signals, int output, Deadline deadline, Printer& printer) {
  bool asked = false;
  std::vector<char> buffer(1 << 18);
  for (;;) {
    // A pipe without a reader gives POLLERR (pipe(7)), even if nothing is written.
    pollfd fds[] = {
        {socket, POLLIN, 0}, {asked ? -1 : signals, POLLIN, 0}, {asked ? -1 : output, 0, 0}};
    const int ready = poll(fds, 3, asked ? -1 : WaitMs(deadline));
    if (ready < 0 && errno != EINTR) return Outcome::kDaemonEnded;
    const bool is_over = std::chrono::steady_clock::now() >= deadline;
    const bool is_unread = (fds[2].revents & POLLERR) != 0;
    if (!asked && (is_over || (fds[1].revents & POLLIN) != 0 || is_unread)) {
      shutdown(socket, SHUT_WR);
      asked = true;
    }
    if ((fds[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    const ssize_t count = recv(socket, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return asked ? Outcome::kDone : Outcome::kDaemonEnded;
    if (!printer.Add({buffer.data(), static_cast<size_t>(count)})) return Outcome::kNoTrace;
    if (printer.has_all() || printer.error() != 0) return Outcome::kDone;
  }
}

int Fail(absl::string_view message) {
  std::fprintf(stderr, "roci: %s\n", std::string(message).c_str());
  return 1;
}

int Report(Outcome outcome, const Printer& printer) {
  std::fprintf(stderr, "%" PRIu64 " records, %" PRIu64 " lost\n", printer.records(),
               printer.lost());
  if (outcome == Outcome::kNoTrace) return Fail("the daemon is of another version of Rocinante");
  if (outcome == Outcome::kDaemonEnded) return Fail("the daemon ended the trace");
  return 0;
}

int Trace(const TraceOptions& options, const std::string& runtime_dir) {
  // Before the request, so that the trace always ends in order.
  const control::UniqueFd signals = CatchSignals();
  const absl::StatusOr<std::vector<Target>> targets = FindTargets(options, runtime_dir);
  if (!targets.ok()) return Fail(targets.status().message());
  const auto socket = OpenStream(runtime_dir, RequestOf(options, *targets));
  if (!socket.ok()) return Fail(socket.status().message());
  const bool to_file = !options.chrome.empty() && options.chrome != "-";
  std::FILE* const file = to_file ? std::fopen(options.chrome.c_str(), "w") : stdout;
  if (file == nullptr) return Fail(absl::StrCat(options.chrome, ": ", std::strerror(errno)));
  Deadline deadline = Deadline::max();
  if (!options.duration.empty()) {
    deadline = std::chrono::steady_clock::now() +
               std::chrono::nanoseconds(*ParseDuration(options.duration, kMostInJson));
  }
  Printer printer(options, *targets, file);
  const Outcome outcome = Follow(socket->get(), signals.get(), fileno(file), deadline, printer);
  printer.Finish();
  int error = printer.error();
  if (to_file && std::fclose(file) != 0 && error == 0) error = errno;
  const int status = Report(outcome, printer);
  // The reader of standard output may close it early: not an error.
  if (error == 0 || (!to_file && error == EPIPE)) return status;
  return Fail(absl::StrCat("cannot write ", to_file ? options.chrome : "standard output", ": ",
                           std::strerror(error)));
}

std::string CheckDuration(const std::string& text) {
  return ParseDuration(text, kMostInJson).value_or(0) != 0
             ? std::string()
             : text + " is not a time such as 500ms or 10s";
}

}  // namespace

void AddTraceCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace", "Print what queue pairs do: posts, packets, completions");
  command->add_option("TARGET", options->targets, "Queue pairs (18, roci0/18) or devices (roci0)")
      ->required();
  command->add_flag("--one-end", options->one_end, "Do not trace the peers of queue pairs");
  command
      ->add_option("--kind", options->kinds,
                   "Only records of this kind: post, packet, complete, timer, event or state; "
                   "repeatable")
      ->expected(1)
      ->take_all()
      ->check(CLI::IsMember(std::vector<std::string>(control::kTraceKindNames.begin(),
                                                     control::kTraceKindNames.end())));
  command
      ->add_option("--opcode", options->opcodes,
                   "Of packets, only those with this opcode: a name (RC_SEND_ONLY), a pattern "
                   "('*READ*') or a number; repeatable")
      ->expected(1)
      ->take_all()
      ->check([](const std::string& text) {
        return FindOpcodes(text).empty() ? "there is no opcode " + text : std::string();
      });
  command->add_option("-c,--count", options->count, "Number of records after which to end")
      ->check([](const std::string& text) {
        return ParseNumber(text, kMostInJson).value_or(0) != 0
                   ? std::string()
                   : text + " is not a number of records from 1 to 2^53";
      });
  command->add_option("--for", options->duration, "Time after which to end: 500ms, 10s")
      ->type_name("TIME")
      ->check(CheckDuration);
  CLI::Option* const json =
      command->add_flag("--json", options->json, "Print a JSON object a line");
  command
      ->add_option("--chrome", options->chrome,
                   "Write a trace for chrome://tracing or ui.perfetto.dev instead of lines; - for "
                   "standard output")
      ->type_name("FILE")
      ->excludes(json);
  command->footer(kManual);
  command->callback(
      [options, &context] { context.exit_status = Trace(*options, context.runtime_dir); });
}

}  // namespace roci::tools
