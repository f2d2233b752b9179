// One event channel of librdmacm: its connection to the daemon, the events that wait for the
// program, and the descriptor that is readable for poll() while there are events.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/cm/cm_id.h"
#include "control/device/blocking_calls.h"
#include "control/device/foreign_fds.h"
#include "control/device/users.h"
#include "control/loop/event_loop.h"
#include "control/loop/socket.h"
#include "control/loop/unique_fd.h"
#include "memory/app_memory.h"

namespace roci::control::cm {

// Control thread only.
class Channel {
 public:
  // Descriptors per channel: socket, process, its memory, an end of the signal.
  static constexpr uint64_t kDescriptors = 4;
  // A channel's shares of its user's quotas; `user` keeps the quotas alive.
  struct Admission {
    std::shared_ptr<User> user;
    QuotaShare channel;
    QuotaShare descriptors;
    roce::TimeNs hello_deadline = roce::kNever;  // see HelloDeadlines
  };

  // `receive` is called when the connection has something to read or has ended.
  static absl::StatusOr<std::unique_ptr<Channel>> Create(EventLoop& loop, ForeignFds& closer,
                                                         BlockingCalls& calls, UniqueFd socket,
                                                         Peer peer, Admission admission,
                                                         uint32_t number,
                                                         std::function<void(Channel&)> receive);
  ~Channel() { Disconnect(); }
  // Ends the connection: nothing is received any more.
  void Disconnect();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  uint32_t number() const { return number_; }
  const Peer& peer() const { return peer_; }
  const User* user() const { return admission_.user.get(); }
  const std::shared_ptr<User>& shared_user() const { return admission_.user; }
  // For ports below 1024, as it was when the command that is being handled arrived.
  bool MayBindPrivilegedPorts() const;
  // A thread finds out something about the program: `socket` is not read.
  bool is_waiting() const { return call_ != 0; }
  // Finds out whether MayBindPrivilegedPorts(), then calls `done`. False: it is known, or no thread
  // can be started; `done` is not called.
  bool LookUpPrivilege(std::function<void()> done);
  void ForgetPrivilege() { may_bind_privileged_ports_ = false; }
  int socket() const { return socket_.get(); }
  // Numbers of its identifiers, also those of requests that the program has not fetched.
  std::set<uint32_t>& ids() { return ids_; }
  roce::TimeNs hello_deadline() const { return admission_.hello_deadline; }
  // Creates the descriptor for the program. Call once.
  absl::StatusOr<UniqueFd> OpenSignal();
  bool is_open() const { return signal_.valid(); }

  const std::deque<QueuedEvent>& events() const { return events_; }
  void Push(const QueuedEvent& event);
  // There must be an event.
  QueuedEvent Pop();
  // Removes and returns the events that the program would acknowledge to identifier `number`.
  std::vector<QueuedEvent> RemoveEvents(uint32_t number);
  void ClearEvents();
  // Whether too many events wait in this channel, or in all channels of the user, as the programs
  // do not fetch them. Commands that make further events are then refused; events of peers are not.
  bool is_full() const {
    return events_.size() >= kMostEvents || admission_.user->connection_events.left() == 0;
  }
  void RemoveMembershipEvents(uint32_t number);
  // For each answer: roci_abi_cm_response::bytes_withdrawn.
  uint32_t WithdrawnBytes();

 private:
  Channel(EventLoop& loop, ForeignFds& closer, BlockingCalls& calls, UniqueFd socket, Peer peer,
          Admission admission, uint32_t number)
      : loop_(loop),
        closer_(closer),
        calls_(calls),
        admission_(std::move(admission)),
        socket_(std::move(socket)),
        peer_(std::move(peer)),
        number_(number) {}
  bool LookUpProgram();
  bool Await(uint64_t call);
  void Resume();
  void Signal();
  void ChargeEvents();

  EventLoop& loop_;
  ForeignFds& closer_;
  BlockingCalls& calls_;
  const Admission admission_;
  UniqueFd socket_;
  Peer peer_;
  // The program that connected, for capability checks. Null for the daemon's own user, and for a
  // program that its user may not trace (ptrace(2): set-user-ID, file capabilities, not dumpable).
  std::shared_ptr<memory::AppMemory> program_;
  uint64_t call_ = 0;  // under way; see BlockingCalls
  bool may_bind_privileged_ports_ = false;
  const uint32_t number_;
  EventLoop::Watch watch_ = 0;
  static constexpr size_t kMostEvents = 16384;
  UniqueFd signal_;
  bool is_signalled_ = false;  // a byte that is not withdrawn is in the socket
  uint32_t withdrawn_bytes_ = 0;
  std::set<uint32_t> ids_;
  std::deque<QueuedEvent> events_;
  QuotaShare events_share_;
};

}  // namespace roci::control::cm
