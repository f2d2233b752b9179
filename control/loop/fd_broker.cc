#include "control/loop/fd_broker.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/loop/runtime_files.h"
#include "control/loop/socket.h"
#include "memory/app_memory.h"
#include "memory/local_file.h"

namespace roci::control {
namespace {

// Descriptors that the broker itself needs, alone and with one message of the session protocol.
constexpr uint64_t kOwn = 64;
constexpr uint64_t kLeast = kOwn + kMaxRequestFds;

// How many descriptors of one message fit in a table of `table_size`. In a table smaller than
// kOwn + kMaxMessageFds the kernel closes the rest of a longer message, and the sender can make
// that block the broker.
uint64_t MessageRoom(uint64_t table_size) {
  return std::min<uint64_t>(kMaxMessageFds, table_size - std::min(table_size, kOwn));
}

// The descriptors beside a received message.
std::vector<int> TakeFds(msghdr& message) {
  std::vector<int> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = fds.size();
    fds.resize(before + count);
    std::memcpy(&fds[before], CMSG_DATA(header), count * sizeof(int));
  }
  return fds;
}

BrokerFile Describe(int fd) {
  BrokerFile file = {.fd = fd, .passed_on = 0};
  struct statx status {};
  const int flags = fcntl(fd, F_GETFL);
  const bool opened = flags >= 0 && (flags & O_PATH) == 0;
  // Not fstat(2), which FUSE may ask its server about.
  if (opened && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status) == 0) {
    file.device = makedev(status.stx_dev_major, status.stx_dev_minor);
    file.inode = status.stx_ino;
  }
  file.passed_on = memory::InspectLocalFile(fd).has_value() || memory::IsDmaBuffer(fd) ||
                   memory::MayBeMemoryOfProcess(fd);
  return file;
}

// Closes descriptors: one thread per account, which runs while the account has work. Never
// destroyed, since these threads may run until the process ends.
class Closers {
 public:
  // `daemon`: where the answers go.
  Closers(int daemon, uint64_t table_size) : daemon_(daemon), table_size_(table_size) {}

  // Whether a message with descriptors may be received.
  bool HasRoom() {
    const std::lock_guard guard(mutex_);
    return held_ + kOwn + MessageRoom(table_size_) <= table_size_;
  }
  void NoteHeld(size_t fds) {
    const std::lock_guard guard(mutex_);
    held_ += fds;
  }
  // Closes `fds`; a message of `drop_from` (-1: none) goes first.
  void Add(const BrokerRequest& request, std::vector<int> fds, int drop_from = -1) {
    const std::lock_guard guard(mutex_);
    Account& account = accounts_[request.account];
    account.jobs.push_back({request.ticket, drop_from, std::move(fds)});
    account.wake.notify_one();
    StartThread(request.account, account);
  }
  // Starts threads for accounts whose thread could not be created.
  void Retry() {
    const std::lock_guard guard(mutex_);
    for (auto& [number, account] : accounts_) StartThread(number, account);
  }

 private:
  struct Job {
    uint64_t ticket;
    int drop_from;
    std::vector<int> fds;
  };
  struct Account {
    std::deque<Job> jobs;
    std::condition_variable wake;
    bool has_thread = false;
  };

  void StartThread(uint64_t number, Account& account) {
    if (account.has_thread || account.jobs.empty()) return;
    try {
      std::thread([this, number] { Run(number); }).detach();
      account.has_thread = true;
    } catch (const std::system_error&) {
      // Retry() tries again.
    }
  }

  // The thread waits a while for more work: creating a thread costs more than most closes.
  void Run(uint64_t number) {
    constexpr std::chrono::milliseconds kIdle(200);
    std::unique_lock lock(mutex_);
    Account& account = accounts_[number];
    while (account.wake.wait_for(lock, kIdle, [&] { return !account.jobs.empty(); })) {
      const Job job = std::move(account.jobs.front());
      account.jobs.pop_front();
      lock.unlock();
      Do(job);
      lock.lock();
      held_ -= std::min<uint64_t>(held_, job.fds.size());
    }
    accounts_.erase(number);
  }

  void Do(const Job& job) const {
    std::byte byte;
    // recv() has no room for descriptors: the kernel closes those of the message.
    if (job.drop_from >= 0) recv(job.drop_from, &byte, sizeof(byte), MSG_DONTWAIT);
    for (const int fd : job.fds) close(fd);
    BrokerResponse response{};
    response.answer = BrokerAnswer::kClosed;
    response.ticket = job.ticket;
    send(daemon_, &response, offsetof(BrokerResponse, files), MSG_NOSIGNAL);
  }

  const int daemon_;
  const uint64_t table_size_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  std::map<uint64_t, Account> accounts_;
};

class Broker {
 public:
  explicit Broker(int daemon)
      : daemon_(daemon), closers_(daemon, FileLimit()), room_(MessageRoom(FileLimit())) {}

  // Until the daemon closes its end.
  void Run() {
    constexpr int kRetryMs = 100;
    for (;;) {
      pollfd wait{daemon_, POLLIN, 0};
      if (poll(&wait, 1, kRetryMs) > 0 && !Handle()) return;
      closers_.Retry();
    }
  }

 private:
  bool Handle() {
    BrokerRequest request;
    iovec part{&request, sizeof(request)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(daemon_, &message, MSG_CMSG_CLOEXEC);
    if (size < 0) return errno == EINTR || errno == EAGAIN;
    if (size != sizeof(request)) return false;
    const std::vector<int> fds = TakeFds(message);
    const int fd = fds.empty() ? -1 : fds[0];
    switch (request.command) {
      case BrokerCommand::kReceive:
        Receive(request, fd);
        break;
      case BrokerCommand::kDrop:
        closers_.NoteHeld(1);
        closers_.Add(request, fds, fd);
        break;
      case BrokerCommand::kRelease:
        closers_.Add(request, std::exchange(kept_[request.ticket], {}));
        kept_.erase(request.ticket);
        break;
      case BrokerCommand::kClose:
        closers_.NoteHeld(fds.size());
        closers_.Add(request, fds);
        break;
    }
    return true;
  }

  void Receive(const BrokerRequest& request, int socket) {
    BrokerResponse response{};
    response.answer = BrokerAnswer::kNoMessage;
    response.ticket = request.ticket;
    std::vector<int> passed_on;
    if (closers_.HasRoom() && TakeMessage(socket, response)) {
      for (const BrokerFile& file : std::span(response.files).first(kept_count_)) {
        if (file.passed_on != 0) passed_on.push_back(file.fd);
      }
    }
    close(socket);  // does not block: the daemon still has it open
    Send(response, passed_on);
  }

  // There is room for all descriptors (HasRoom), so the kernel closes none.
  bool TakeMessage(int socket, BrokerResponse& response) {
    iovec part{response.bytes.data(), response.bytes.size()};
    alignas(
        cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds) + CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = std::min<size_t>(
        sizeof(control), CMSG_SPACE(sizeof(int) * room_) + CMSG_SPACE(sizeof(ucred)));
    const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (size < 0) return false;
    std::vector<int> fds = TakeFds(message);
    closers_.NoteHeld(fds.size());
    kept_count_ = std::min(fds.size(), response.files.size());
    std::transform(fds.begin(), fds.begin() + static_cast<ptrdiff_t>(kept_count_),
                   response.files.begin(), &Describe);
    response.answer = BrokerAnswer::kReceived;
    response.fd_count = static_cast<uint32_t>(fds.size());
    response.size = static_cast<uint64_t>(size);
    kept_[response.ticket] = std::move(fds);
    return true;
  }

  void Send(const BrokerResponse& response, const std::vector<int>& fds) const {
    SendMessage(daemon_, std::as_bytes(std::span(&response, 1)), fds, SendMode::kBlocking);
  }

  const int daemon_;
  Closers closers_;
  const uint64_t room_;
  size_t kept_count_ = 0;                      // of the last received message
  std::map<uint64_t, std::vector<int>> kept_;  // by ticket
};

// Closes all descriptors but `socket` and drops all capabilities.
void Isolate(int socket) {
  const int nothing = open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) dup2(nothing, standard);
  dup2(socket, 3);
  close_range(4, ~0U, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  syscall(SYS_capset, &header, none);
  prctl(PR_SET_NAME, "rocid-fds");
  // The daemon compares the broker's descriptors with those of programs: kcmp(2).
  prctl(PR_SET_DUMPABLE, 1);
}

[[noreturn]] void RunBroker(int daemon) {
  Broker broker(daemon);
  broker.Run();
  _exit(0);  // without destructors: the threads of Closers still use the broker
}

}  // namespace

void LimitBrokerQueue(int socket) {
  constexpr int kLeastBuffer = 1;  // rounded up to the kernel's minimum
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kLeastBuffer, sizeof(kLeastBuffer));
}

absl::StatusOr<FdBroker> StartFdBroker() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  FdBroker broker;
  broker.socket.Reset(ends[0]);
  const UniqueFd far(ends[1]);
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return StatusFromErrno(errno, "fcntl");
  LimitBrokerQueue(ends[0]);
  RaiseFileLimit();
  if (FileLimit() < kLeast) {
    return StatusFromErrno(EMFILE, absl::StrCat("RLIMIT_NOFILE (ulimit -n) is ", FileLimit(),
                                                ", rocid needs at least ", kLeast));
  }
  broker.pid = fork();
  if (broker.pid < 0) return StatusFromErrno(errno, "fork");
  if (broker.pid != 0) return broker;
  Isolate(ends[1]);
  RunBroker(3);
}

}  // namespace roci::control
