// A process of an ordinary user that attacks root's daemon.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>

namespace roci::testing {

inline constexpr uid_t kNobody = 65534;

// A line of numbers between this process and the attacker.
struct Line {
  Line() {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) std::abort();
  }
  ~Line() {
    close(ends[0]);
    close(ends[1]);
  }
  static void Send(int end, int64_t value) {
    if (write(end, &value, sizeof(value)) != sizeof(value)) std::abort();
  }
  static int64_t Receive(int end) {
    int64_t value = 0;
    if (read(end, &value, sizeof(value)) != sizeof(value)) _exit(3);
    return value;
  }
  int ends[2];  // of this process, of the attacker
};

// Runs `attack(end of the line)` as the ordinary user `uid`. The destructor kills it.
class Attacker {
 public:
  explicit Attacker(const std::function<void(int)>& attack, uid_t uid = kNobody) {
    pid_ = fork();
    if (pid_ != 0) return;
    if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(uid, uid, uid) != 0) {
      _exit(3);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 1);  // like a program started by the user
    attack(line_.ends[1]);
    _exit(0);
  }
  ~Attacker() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  void Say(int64_t value) { Line::Send(line_.ends[0], value); }
  // -1000: the attacker has ended.
  int64_t Hear() {
    pollfd wait{line_.ends[0], POLLIN, 0};
    for (int tries = 0; tries < 1200; ++tries) {
      if (poll(&wait, 1, 100) > 0) return Line::Receive(line_.ends[0]);
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
    }
    return -1000;
  }

 private:
  Line line_;
  pid_t pid_;
};

}  // namespace roci::testing
