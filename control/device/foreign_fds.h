// The daemon's end of the descriptor broker (control/loop/fd_broker.h): receives descriptors that
// programs pass, and closes sockets in which such descriptors may wait.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "control/device/turn_queue.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "control/loop/fd_broker.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

class ForeignFds;

// A file that a program has passed.
struct ForeignFile {
  UniqueFd local;      // a local file or DMA buffer; invalid: system calls on the file may block
  int broker_fd = -1;  // its number in the broker
  dev_t device = 0;
  ino_t inode = 0;  // 0: see BrokerFile
};

// The files of one message. The destructor lets the broker close its copies. They are charged to
// the user's descriptors until the broker has closed them.
class ForeignFiles {
 public:
  // `count`: descriptors in the message; only the first `kept` are here.
  ForeignFiles(ForeignFds& owner, uint64_t ticket, uint32_t count, size_t kept)
      : owner_(owner), ticket_(ticket), message_count_(count) {
    files_.reserve(kept);
  }
  ~ForeignFiles();
  ForeignFiles(const ForeignFiles&) = delete;
  ForeignFiles& operator=(const ForeignFiles&) = delete;

  const ForeignFile& operator[](size_t i) const { return files_[i]; }
  // Descriptors in the message. At most kMaxRequestFds of them are kept here.
  uint32_t message_count() const { return message_count_; }
  void Add(ForeignFile file) { files_.push_back(std::move(file)); }

 private:
  ForeignFds& owner_;
  const uint64_t ticket_;
  const uint32_t message_count_;
  std::vector<ForeignFile> files_;
};

struct ForeignMessage {
  std::span<const std::byte> bytes;
  std::shared_ptr<ForeignFiles> files;
};

// Control thread only.
class ForeignFds {
 public:
  // Null: there was no message, or the broker had no room for its descriptors.
  using Receiver = std::function<void(const ForeignMessage*)>;

  // `loop` and `users` outlive this object; sessions and channels are destroyed before it. The loop
  // stops if the broker process ends.
  static absl::StatusOr<std::unique_ptr<ForeignFds>> Create(EventLoop& loop, Users& users,
                                                            FdBroker broker);
  // Sends all pending requests to the broker; waits at most a second for a stuck one.
  ~ForeignFds();
  ForeignFds(const ForeignFds&) = delete;
  ForeignFds& operator=(const ForeignFds&) = delete;

  pid_t broker_pid() const { return broker_.pid; }

  // Receives the message at the head of `socket`, which has descriptors. Returns a ticket for
  // Forget; 0: `user` is at its descriptor limit. The caller reads nothing else from `socket` until
  // `receiver` is called.
  uint64_t Receive(int socket, const std::shared_ptr<User>& user, Receiver receiver);
  // Drops that message instead, and calls `done` when its descriptors are closed.
  uint64_t Drop(int socket, const std::shared_ptr<User>& user, std::function<void()> done);
  // The receiver or `done` of `ticket` will not be called. Ignores 0 and old tickets.
  void Forget(uint64_t ticket);

  // Shuts a socket down at once and lets the broker close it. It is charged to the user's
  // descriptors, beyond their limit if necessary, until it is closed.
  void Close(UniqueFd socket, std::shared_ptr<User> user) noexcept;
  // The same for a socket without a session: charged to the user of its peer.
  void Close(UniqueFd socket) noexcept;

 private:
  friend class ForeignFiles;
  // A request whose descriptors the broker has not closed yet.
  struct Ticket {
    std::shared_ptr<User> user;
    QuotaShare descriptors;
    Receiver receiver;
    std::function<void()> done;
    bool is_to_be_released = false;  // kRelease could not be queued
  };
  struct Pending {
    BrokerRequest request;
    UniqueFd fd;
  };

  ForeignFds(EventLoop& loop, Users& users, FdBroker broker)
      : loop_(loop), users_(users), broker_(std::move(broker)) {}
  void Handle(uint32_t events);
  bool ReceiveAnswer();
  void Deliver(const BrokerResponse& response, std::vector<UniqueFd> fds);
  uint64_t Ask(BrokerCommand command, UniqueFd fd, Ticket ticket);
  void Release(uint64_t number) noexcept;
  void RetryReleases();
  std::shared_ptr<ForeignFiles> FilesOf(const BrokerResponse& response, std::vector<UniqueFd> fds);
  void Enqueue(BrokerCommand command, uint64_t number, const Ticket& ticket, UniqueFd fd);
  void Flush();
  bool Send(const Pending& pending) const;

  EventLoop& loop_;
  Users& users_;
  FdBroker broker_;
  EventLoop::Watch watch_ = 0;
  uint64_t last_ticket_ = 0;
  bool has_unreleased_ = false;
  std::map<uint64_t, Ticket> tickets_;
  TurnQueue<Pending> pending_;  // by user; the broker's socket holds few more
};

}  // namespace roci::control
