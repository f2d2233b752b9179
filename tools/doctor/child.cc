#include "tools/doctor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "control/loop/unique_fd.h"

namespace roci::tools {
namespace {

using control::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = size_t{1} << 20;

// One of the child's two outputs.
struct Stream {
  UniqueFd reader, writer;
  std::string* text;
};

bool Open(Stream& stream) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  stream.reader.Reset(ends[0]);
  stream.writer.Reset(ends[1]);
  return true;
}

// False: end of file.
bool Read(Stream& stream) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(stream.reader.get(), buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  const size_t room = kMostBytes - stream.text->size();
  stream.text->append(buffer.data(), std::min(room, static_cast<size_t>(count)));
  return count > 0;
}

// Reads both streams until their ends; false at `deadline`.
bool ReadAll(std::array<Stream, 2>& streams, Clock::time_point deadline) {
  std::array<pollfd, 2> waits = {pollfd{streams[0].reader.get(), POLLIN, 0},
                                 pollfd{streams[1].reader.get(), POLLIN, 0}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      return false;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd >= 0 && waits[i].revents != 0 && !Read(streams[i])) waits[i].fd = -1;
    }
  }
  return true;
}

// The status of waitpid(2). Kills the process group at `deadline`.
int Await(pid_t child, Clock::time_point deadline) {
  constexpr useconds_t kNapUs = 1000;
  int status = 0;
  for (bool killed = false;;) {
    const pid_t ended = waitpid(child, &status, killed ? 0 : WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return status;
    if (!killed && Clock::now() >= deadline) killed = kill(-child, SIGKILL) == 0;
    if (!killed) usleep(kNapUs);
  }
}

// In the child. Its own process group, so that what it started can be ended with it.
[[noreturn]] void Start(const std::array<Stream, 2>& streams, const std::function<int()>& body) {
  setpgid(0, 0);
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing.valid()) dup2(nothing.get(), STDIN_FILENO);
  dup2(streams[0].writer.get(), STDOUT_FILENO);
  dup2(streams[1].writer.get(), STDERR_FILENO);
  _exit(body());
}

}  // namespace

ChildEnd RunInChild(const std::function<int()>& body, int limit_s) {
  ChildEnd end;
  std::array<Stream, 2> streams = {Stream{{}, {}, &end.out}, Stream{{}, {}, &end.said}};
  if (!Open(streams[0]) || !Open(streams[1])) return end;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(limit_s);
  const pid_t child = fork();
  if (child < 0) return end;
  if (child == 0) Start(streams, body);
  setpgid(child, child);  // the child does so as well, whoever is first
  for (Stream& stream : streams) stream.writer.Reset();
  const bool ended = ReadAll(streams, deadline);
  const int status = Await(child, ended ? deadline : Clock::now());
  if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

ChildEnd RunCommand(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment, int limit_s) {
  constexpr int kNotFound = 127;
  return RunInChild(
      [&] {
        for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
        std::vector<char*> arguments;
        for (const std::string& each : command)
          arguments.push_back(const_cast<char*>(each.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        return kNotFound;
      },
      limit_s);
}

}  // namespace roci::tools
