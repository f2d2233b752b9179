// The daemon's end of the descriptor broker (control/loop/fd_broker.h): descriptors that other
// programs pass, and the closing of sockets that such descriptors may lie in.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device/quota.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "control/loop/fd_broker.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

class ForeignFds;

// A file that a program has passed.
struct ForeignFile {
  UniqueFd local;      // of a local file or a DMA buffer; invalid: no call on the file is safe
  int broker_fd = -1;  // its number in the broker
  dev_t device = 0;
  ino_t inode = 0;
};

// The files of one message. The broker keeps them, and they count to the user's descriptors, until
// they are closed there, after this is gone.
class ForeignFiles {
 public:
  // `count`: how many there were, of which the first `kept` are.
  ForeignFiles(ForeignFds& owner, uint64_t ticket, uint32_t count, size_t kept)
      : owner_(owner), ticket_(ticket), message_count_(count) {
    files_.reserve(kept);
  }
  ~ForeignFiles();
  ForeignFiles(const ForeignFiles&) = delete;
  ForeignFiles& operator=(const ForeignFiles&) = delete;

  const ForeignFile& operator[](size_t i) const { return files_[i]; }
  // Of the message: may be more than are kept here, which is kMaxRequestFds at most.
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
  // Null: there was no message, or the broker has no room.
  using Receiver = std::function<void(const ForeignMessage*)>;

  // `loop` and `users` outlive this; sessions and channels do not. The loop stops if the broker
  // ends.
  static absl::StatusOr<std::unique_ptr<ForeignFds>> Create(EventLoop& loop, Users& users,
                                                            FdBroker broker);
  // Waits until the broker has been told everything, which takes it no time.
  ~ForeignFds();
  ForeignFds(const ForeignFds&) = delete;
  ForeignFds& operator=(const ForeignFds&) = delete;

  pid_t broker_pid() const { return broker_.pid; }

  // Takes the message at the head of `socket`, which has descriptors. 0: `user` has as many as it
  // may have; otherwise a number for Forget. Nothing else is read from `socket` meanwhile.
  uint64_t Receive(int socket, const std::shared_ptr<User>& user, Receiver receiver);
  // Drops that message instead, and says so when its descriptors are closed.
  uint64_t Drop(int socket, const std::shared_ptr<User>& user, std::function<void()> done);
  // Nobody asks for the answer any more. 0 is nothing.
  void Forget(uint64_t ticket);

  // Closes a socket, which its peer sees at once. It counts to the user's descriptors, beyond their
  // limit if need be, until it is closed.
  void Close(UniqueFd socket, std::shared_ptr<User> user) noexcept;
  // The same for a socket without a session: its peer's user pays.
  void Close(UniqueFd socket) noexcept;

 private:
  friend class ForeignFiles;
  // What the broker has not closed.
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
  std::deque<Pending> pending_;
};

}  // namespace roci::control
