#include "tools/scenario/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace roci::tools {
namespace {

constexpr int kNotFound = 127;

// In the child. `output`: the end that it writes to.
[[noreturn]] void Execute(const std::vector<std::string>& command, const std::string& directory,
                          int output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotFound);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (chdir(directory.c_str()) != 0) _exit(kNotFound);
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
  std::fflush(stderr);
  _exit(kNotFound);
}

}  // namespace

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

absl::Status Process::Start(const std::vector<std::string>& command, const std::string& directory) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  output_.Reset(ends[0]);
  const control::UniqueFd writer(ends[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  const pid_t parent = getpid();
  started_ns_ = NowNs();
  pid_ = fork();
  if (pid_ == 0) Execute(command, directory, writer.get(), parent);
  if (pid_ < 0) {
    pid_ = 0;
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot start ", command[0]));
  }
  setpgid(pid_, pid_);  // parent and child both do it: either may be first
  return absl::OkStatus();
}

void Process::ReadOutput() {
  // Bounded: a program that prints without an end must not keep the others waiting.
  constexpr int kMostReads = 16;
  char buffer[16384];
  for (int i = 0; i < kMostReads && output_.valid(); ++i) {
    const ssize_t count = read(output_.get(), buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      output_.Reset();
    } else {
      tail_.Add({buffer, static_cast<size_t>(count)});
    }
  }
}

void Process::Signal(int number) const {
  if (IsRunning()) kill(pid_, number);
}

void Process::KillGroup() const {
  if (IsRunning()) kill(-pid_, SIGKILL);
}

void Process::Ended(int wait_status) {
  end_ = wait_status;
  ended_ns_ = NowNs();
  ReadOutput();
}

}  // namespace roci::tools
