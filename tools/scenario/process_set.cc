#include "tools/scenario/process_set.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "roce/work.h"

namespace roci::tools {
namespace {

using roce::kNsPerMs;

// The children of this process that are still there, also those that have lost their own parents.
std::vector<pid_t> Children() {
  std::vector<pid_t> out;
  const std::string path = absl::StrCat("/proc/self/task/", getpid(), "/children");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             std::fclose);
  if (file == nullptr) return out;
  int pid = 0;
  while (std::fscanf(file.get(), "%d", &pid) == 1) out.push_back(pid);
  return out;
}

}  // namespace

ProcessSet::ProcessSet() {
  // Orphans of the programs become children of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signals_.Reset(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

absl::StatusOr<Process*> ProcessSet::Start(const std::vector<std::string>& command,
                                           const std::string& directory) {
  Process& process = processes_.emplace_back();
  const absl::Status status = process.Start(command, directory);
  if (!status.ok()) return status;
  return &process;
}

void ProcessSet::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) interrupted_ = true;
  }
}

void ProcessSet::Reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto ended = std::ranges::find_if(
        processes_, [pid](const Process& each) { return each.IsRunning() && each.pid() == pid; });
    if (ended != processes_.end()) ended->Ended(status);
  }
}

void ProcessSet::Wait(uint64_t until_ns) {
  constexpr uint64_t kMostMs = 3'600'000;
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<Process*> readers;
  for (Process& process : processes_) {
    if (process.output_fd() < 0) continue;
    fds.push_back({process.output_fd(), POLLIN, 0});
    readers.push_back(&process);
  }
  const uint64_t now_ns = NowNs();
  const uint64_t left_ms = until_ns <= now_ns ? 0 : (until_ns - now_ns + kNsPerMs - 1) / kNsPerMs;
  poll(fds.data(), fds.size(), static_cast<int>(std::min(left_ms, kMostMs)));
  for (size_t i = 0; i < readers.size(); ++i) {
    if (fds[i + 1].revents != 0) readers[i]->ReadOutput();
  }
  TakeSignals();
  Reap();
}

void ProcessSet::EndAll() {
  constexpr uint64_t kLimitNs = 10'000 * kNsPerMs;
  constexpr int kPauseMs = 20;
  const uint64_t deadline_ns = NowNs() + kLimitNs;
  for (const Process& process : processes_) process.KillGroup();
  while (NowNs() < deadline_ns) {
    // Orphans of a killed program become children of this process.
    for (const pid_t pid : Children()) kill(pid, SIGKILL);
    Reap();
    if (waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return;
    pollfd ends = {signals_.get(), POLLIN, 0};
    poll(&ends, 1, kPauseMs);
    TakeSignals();
  }
}

}  // namespace roci::tools
