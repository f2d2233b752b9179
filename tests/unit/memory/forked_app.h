// A forked child that acts as the program: a process with its own memory, controlled by a socket.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "memory/app_memory.h"

namespace roci::memory {

/// One end of the connection between test and program. Carries numbers and file descriptors, in
/// order.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel() { close(fd_); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void Send(uint64_t value) { SendWithFd(value, -1); }
  void SendWithFd(uint64_t value, int fd) {
    iovec data{&value, sizeof value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (sendmsg(fd_, &message, MSG_NOSIGNAL) != sizeof value) std::abort();
  }
  /// Returns the next number. Stores the descriptor that was sent with it, or -1, in *fd. Exits
  /// with status 1 if the other end is closed, so that no program outlives its test.
  uint64_t Receive(int* fd = nullptr) {
    uint64_t value = 0;
    iovec data{&value, sizeof value};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd_, &message, MSG_CMSG_CLOEXEC) != sizeof value) _exit(1);
    if (fd != nullptr) {
      *fd = -1;
      if (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
        std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
      }
    }
    return value;
  }

 private:
  int fd_;
};

/// Runs `body(channel)` in a child process. The destructor ends the child.
class ForkedApp {
 public:
  template <class Body>
  explicit ForkedApp(Body body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      Channel channel(ends[1]);
      body(channel);
      _exit(0);
    }
    close(ends[1]);
    channel_ = std::make_unique<Channel>(ends[0]);
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  }
  ~ForkedApp() {
    Kill();
    if (pidfd_ >= 0) close(pidfd_);
  }
  ForkedApp(const ForkedApp&) = delete;
  ForkedApp& operator=(const ForkedApp&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }
  Channel& channel() { return *channel_; }

  std::unique_ptr<AppMemory> Open(Reach reach = Reach::kProcess) const {
    int error = 0;
    auto memory = AppMemory::Open(pid_, pidfd_, reach, &error);
    EXPECT_NE(memory, nullptr) << "errno " << error;
    return memory;
  }

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
  std::unique_ptr<Channel> channel_;
};

/// Byte `i` of the pattern named `seed`.
inline std::byte PatternByte(uint64_t seed, uint64_t i) {
  const uint64_t x = (i + seed * 977) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::byte>(x >> 56);
}
inline void FillPattern(void* at, size_t length, uint64_t seed) {
  for (size_t i = 0; i < length; ++i) static_cast<std::byte*>(at)[i] = PatternByte(seed, i);
}
inline bool HasPattern(const void* at, size_t length, uint64_t seed) {
  for (size_t i = 0; i < length; ++i) {
    if (static_cast<const std::byte*>(at)[i] != PatternByte(seed, i)) return false;
  }
  return true;
}

}  // namespace roci::memory
