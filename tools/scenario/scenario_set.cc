#include "tools/scenario/scenario_set.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "control/loop/unique_fd.h"
#include "roce/work.h"
#include "tools/scenario/process.h"

namespace roci::tools {
namespace {

using control::UniqueFd;
using Json = nlohmann::json;

using roce::kNsPerMs;
// Beyond the scenario's own limit: start and end of its daemon, and the verdicts.
constexpr uint64_t kGraceNs = 180'000 * kNsPerMs;
constexpr size_t kMostAnswerBytes = size_t{16} << 20;

// One run in its process.
struct RunnerProcess {
  pid_t pid = 0;
  const Scenario* scenario = nullptr;
  uint32_t run = 1;
  uint64_t deadline_ns = 0;
  UniqueFd answer;
  std::string text;
};

class ScenarioSet {
 public:
  ScenarioSet(const std::vector<Scenario>& scenarios, const SetSettings& settings,
              const std::function<void(const Outcome&)>& report)
      : scenarios_(scenarios), settings_(settings), report_(report) {}

  absl::StatusOr<uint64_t> Run() {
    absl::Status status = Prepare();
    while (status.ok() && (!runners_.empty() || (!interrupted_ && next_ < All()))) {
      while (status.ok() && !interrupted_ && next_ < All() && runners_.size() < settings_.jobs) {
        status = Start();
      }
      Wait();
    }
    for (const RunnerProcess& runner : runners_) kill(runner.pid, SIGTERM);
    while (!runners_.empty()) Wait();
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
    if (!status.ok()) return status;
    return All() - reported_;
  }

 private:
  uint64_t All() const { return uint64_t{settings_.repeat} * scenarios_.size(); }

  absl::Status Prepare() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&taken, signal);
    sigprocmask(SIG_BLOCK, &taken, nullptr);
    signals_.Reset(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    const char* const top = std::getenv("TMPDIR");
    std::string path =
        absl::StrCat(top != nullptr && *top != 0 ? top : "/tmp", "/roci-test.XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path);
    // Programs of other users may have to pass through it.
    chmod(path.c_str(), 0755);
    directory_ = path;
    return absl::OkStatus();
  }

  // Run 1 of all scenarios, then run 2, ...
  absl::Status Start() {
    const Scenario& scenario = scenarios_[next_ % scenarios_.size()];
    const auto run = static_cast<uint32_t>(next_ / scenarios_.size()) + 1;
    RunnerSettings settings = settings_.runner;
    settings.directory = absl::StrCat(directory_, "/", next_);
    if (!settings.keep.empty()) {
      absl::StrAppend(&settings.keep, "/", scenario.name,
                      settings_.repeat > 1 ? absl::StrCat("-", run) : "");
    }
    if (mkdir(settings.directory.c_str(), 0755) != 0) {
      return absl::ErrnoToStatus(errno, settings.directory);
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    RunnerProcess& runner = runners_.emplace_back();
    runner.answer.Reset(ends[0]);
    const UniqueFd writer(ends[1]);
    runner.scenario = &scenario;
    runner.run = run;
    runner.deadline_ns = NowNs() + scenario.time_limit_ns + kGraceNs;
    const pid_t parent = getpid();
    runner.pid = fork();
    if (runner.pid == 0) RunInChild(scenario, settings, writer.get(), parent);
    if (runner.pid < 0) {
      runners_.pop_back();
      return absl::ErrnoToStatus(errno, "fork");
    }
    ++next_;
    return absl::OkStatus();
  }

  [[noreturn]] static void RunInChild(const Scenario& scenario, const RunnerSettings& settings,
                                      int answer, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    const std::optional<Outcome> outcome = RunScenario(scenario, settings);
    if (!outcome.has_value()) _exit(1);
    constexpr int kCompact = -1;
    const std::string text =
        ToJson(*outcome).dump(kCompact, ' ', false, Json::error_handler_t::replace);
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = write(answer, text.data() + sent, text.size() - sent);
      if (count <= 0) _exit(1);
      sent += static_cast<size_t>(count);
    }
    _exit(0);
  }

  // Until a runner answers or ends, a signal comes, or a runner takes too long.
  void Wait() {
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
    uint64_t wake_ns = UINT64_MAX;
    for (const RunnerProcess& runner : runners_) {
      fds.push_back({runner.answer.get(), POLLIN, 0});
      wake_ns = std::min(wake_ns, runner.deadline_ns);
    }
    const uint64_t now_ns = NowNs();
    constexpr uint64_t kMostMs = 3'600'000;
    const uint64_t left_ms = wake_ns <= now_ns ? 0 : (wake_ns - now_ns) / kNsPerMs + 1;
    poll(fds.data(), fds.size(), static_cast<int>(std::min(left_ms, kMostMs)));
    TakeSignals();
    size_t at = 1;
    for (auto runner = runners_.begin(); runner != runners_.end(); ++at) {
      const bool is_late = NowNs() >= runner->deadline_ns;
      if (is_late) kill(runner->pid, SIGKILL);
      if (is_late || (fds[at].revents != 0 && !Read(*runner))) {
        Finish(*runner, is_late);
        runner = runners_.erase(runner);
      } else {
        ++runner;
      }
    }
  }

  void TakeSignals() {
    signalfd_siginfo info;
    if (read(signals_.get(), &info, sizeof(info)) != sizeof(info) || interrupted_) return;
    interrupted_ = true;
    for (const RunnerProcess& runner : runners_) kill(runner.pid, SIGTERM);
  }

  // False: the end.
  static bool Read(RunnerProcess& runner) {
    char buffer[65536];
    const ssize_t count = read(runner.answer.get(), buffer, sizeof(buffer));
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    if (runner.text.size() < kMostAnswerBytes) {
      runner.text.append(buffer, static_cast<size_t>(count));
    }
    return count > 0;
  }

  void Finish(const RunnerProcess& runner, bool is_late) {
    int status = 0;
    waitpid(runner.pid, &status, 0);
    Outcome outcome;
    const Json answer = Json::parse(runner.text, nullptr, /*allow_exceptions=*/false);
    if (!FromJson(answer, outcome)) {
      if (interrupted_) return;
      outcome = {};
      outcome.scenario = runner.scenario->name;
      outcome.verdicts = {
          {false, "the scenario's runner ends", is_late ? "it took too long" : EndText(status)}};
    }
    outcome.run = runner.run;
    ++reported_;
    report_(outcome);
  }

  const std::vector<Scenario>& scenarios_;
  const SetSettings& settings_;
  const std::function<void(const Outcome&)>& report_;
  UniqueFd signals_;
  std::string directory_;
  std::list<RunnerProcess> runners_;
  uint64_t next_ = 0;
  uint64_t reported_ = 0;
  bool interrupted_ = false;
};

}  // namespace

absl::StatusOr<uint64_t> RunScenarios(const std::vector<Scenario>& scenarios,
                                      const SetSettings& settings,
                                      const std::function<void(const Outcome&)>& report) {
  return ScenarioSet(scenarios, settings, report).Run();
}

}  // namespace roci::tools
