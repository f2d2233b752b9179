#include "tools/scenario/surroundings.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "roce/work.h"
#include "tools/scenario/placeholders.h"
#include "tools/scenario/words.h"
#include "tools/show/manage_client.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

using roce::kNsPerSecond;

constexpr uint64_t kStartLimitNs = 60 * kNsPerSecond;
constexpr uint64_t kEndLimitNs = 30 * kNsPerSecond;
constexpr int kAskLimitS = 5;
// Of the captures that are kept of a failure.
constexpr char kMostFrames[] = "100000";
constexpr char kSnapBytes[] = "256";

std::string TextOfValue(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

absl::Status Surroundings::Start() {
  for (const std::string& folder : {RuntimeDir(), ScratchDir()}) {
    if (mkdir(folder.c_str(), 0755) != 0) return absl::ErrnoToStatus(errno, folder);
  }
  const absl::Status status = StartDaemon();
  return status.ok() && !settings_.keep.empty() ? StartCaptures() : status;
}

absl::Status Surroundings::StartDaemon() {
  std::vector<std::string> command = {settings_.rocid, "--runtime-dir", RuntimeDir()};
  if (!scenario_.rocid_config.empty()) {
    const std::string file = settings_.directory + "/rocid.toml";
    std::ofstream(file) << scenario_.rocid_config;
    command.insert(command.end(), {"--config", file});
  }
  const absl::StatusOr<Process*> daemon = processes_.Start(command, settings_.directory);
  if (!daemon.ok()) return daemon.status();
  daemon_ = *daemon;
  const absl::StatusOr<Pattern> ready = Pattern::Compile("^rocid: ready$");
  uint64_t position = 0;
  const uint64_t deadline_ns = NowNs() + kStartLimitNs;
  while (!daemon_->output().Find(*ready, position)) {
    if (processes_.interrupted()) return absl::CancelledError("interrupted");
    if (!daemon_->IsRunning() || NowNs() >= deadline_ns) {
      return absl::UnavailableError(absl::StrCat("it did not start: ", DaemonText()));
    }
    processes_.Wait(deadline_ns);
  }
  return absl::OkStatus();
}

absl::Status Surroundings::StartCaptures() {
  const absl::StatusOr<Json> devices =
      AskDaemon(RuntimeDir(), ShowRequest(control::ShowKind::kDevices), kAskLimitS);
  if (!devices.ok()) return devices.status();
  for (const Json& device : *devices) {
    const std::string name = device.value("name", "");
    const absl::StatusOr<Process*> capture =
        processes_.Start({settings_.roci, "--runtime-dir", RuntimeDir(), "capture", name, "-w",
                          absl::StrCat(settings_.directory, "/", name, ".pcapng"), "-s", kSnapBytes,
                          "-c", kMostFrames},
                         settings_.directory);
    if (!capture.ok()) return capture.status();
    captures_[name] = *capture;
  }
  // A capture has begun when the daemon counts it.
  const uint64_t deadline_ns = NowNs() + kStartLimitNs;
  for (const auto& [name, capture] : captures_) {
    const absl::StatusOr<Query> query = MakeQuery("ports", name, "/0/captures");
    for (;;) {
      const absl::StatusOr<Json> count = Ask(*query);
      if (count.ok() && count->is_number() && *count > 0) break;
      if (processes_.interrupted()) return absl::CancelledError("interrupted");
      if (!capture->IsRunning() || NowNs() >= deadline_ns) {
        return absl::UnavailableError(
            absl::StrCat("cannot capture ", name, ": ", capture->output().LastLine()));
      }
      constexpr uint64_t kPauseNs = 5'000'000;
      processes_.Wait(NowNs() + kPauseNs);
    }
  }
  return absl::OkStatus();
}

std::string Surroundings::DaemonText() const {
  if (daemon_ == nullptr) return "not started";
  const std::string last = daemon_->output().LastLine();
  const std::string end =
      daemon_->end().has_value() ? EndText(*daemon_->end()) : std::string("it runs");
  return last.empty() ? end : absl::StrCat(end, ", last words: ", last);
}

absl::Status Surroundings::End() {
  const uint64_t deadline_ns = NowNs() + kEndLimitNs;
  const auto await = [&](const Process& process) {
    while (process.IsRunning() && NowNs() < deadline_ns && !processes_.interrupted()) {
      processes_.Wait(deadline_ns);
    }
  };
  for (const auto& [name, capture] : captures_) capture->Signal(SIGINT);
  for (const auto& [name, capture] : captures_) await(*capture);
  if (daemon_ == nullptr) return absl::UnavailableError("not started");
  const bool ran = daemon_->IsRunning();
  daemon_->Signal(SIGTERM);
  await(*daemon_);
  if (ran && daemon_->end() == 0) return absl::OkStatus();
  return absl::InternalError(DaemonText());
}

absl::StatusOr<Json> Surroundings::Ask(const Query& query) const {
  const absl::StatusOr<Json> items = AskDaemon(RuntimeDir(), ShowRequest(query.kind), kAskLimitS);
  if (!items.ok()) return items.status();
  return ValueOf(query, *items);
}

absl::StatusOr<Json> Surroundings::AskFaults(const std::string& device) const {
  return AskDaemon(RuntimeDir(), {{"command", control::kFaultCommand}, {"device", device}},
                   kAskLimitS);
}

absl::StatusOr<std::string> Surroundings::ValueOfPlaceholder(const std::string& name) {
  if (name == "dir") return ScratchDir();
  if (const int number = PortNumber(name); number != 0) {
    const auto known = ports_.find(number);
    if (known != ports_.end()) return absl::StrCat(known->second.number());
    absl::StatusOr<TcpPort> port = TcpPort::Choose();
    if (!port.ok()) return port.status();
    return absl::StrCat(ports_.emplace(number, *std::move(port)).first->second.number());
  }
  const absl::StatusOr<Query> query = ParseQuery(name);
  if (!query.ok()) return query.status();
  const absl::StatusOr<Json> value = Ask(*query);
  if (!value.ok()) return value.status();
  if (value->is_null()) return absl::NotFoundError(absl::StrCat("there is no ", name));
  return TextOfValue(*value);
}

absl::StatusOr<std::string> Surroundings::Fill(const std::string& text) {
  return FillIn(text, [this](const std::string& name) { return ValueOfPlaceholder(name); });
}

absl::StatusOr<Process*> Surroundings::Launch(std::vector<std::string> command,
                                              const std::string& line) {
  // Placeholders first: those of values contain blanks.
  const absl::StatusOr<std::string> filled = Fill(line);
  if (!filled.ok()) return filled.status();
  const absl::StatusOr<std::vector<std::string>> words = SplitWords(*filled);
  if (!words.ok()) return words.status();
  command.insert(command.end(), words->begin(), words->end());
  return processes_.Start(command, ScratchDir());
}

absl::StatusOr<Process*> Surroundings::StartProgram(const std::string& line) {
  std::vector<std::string> command = {settings_.roci, "run", "--runtime-dir", RuntimeDir()};
  if (!settings_.plugin.empty()) command.insert(command.end(), {"--plugin", settings_.plugin});
  command.emplace_back("--");
  return Launch(std::move(command), line);
}

absl::StatusOr<Process*> Surroundings::StartRoci(const std::string& line) {
  return Launch({settings_.roci, "--runtime-dir", RuntimeDir()}, line);
}

void Surroundings::Keep(const std::string& folder) const {
  if (daemon_ != nullptr) std::ofstream(folder + "/rocid.log") << daemon_->output().text();
  std::error_code ignored;
  for (const auto& [name, capture] : captures_) {
    std::filesystem::copy_file(absl::StrCat(settings_.directory, "/", name, ".pcapng"),
                               absl::StrCat(folder, "/", name, ".pcapng"),
                               std::filesystem::copy_options::overwrite_existing, ignored);
  }
}

}  // namespace roci::tools
