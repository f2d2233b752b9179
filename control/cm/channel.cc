#include "control/cm/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"

namespace roci::control::cm {

namespace {

std::unique_ptr<memory::AppMemory> OpenProgram(pid_t pid, int pidfd, uid_t uid) {
  int error = 0;
  auto program = memory::AppMemory::Open(pid, pidfd, memory::Reach::kAddressSpace, &error);
  // The peer may have called exec on a set-user-ID program after it connected.
  if (program != nullptr && !program->AccessibleTo(uid)) program.reset();
  return program;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> Channel::Create(EventLoop& loop, ForeignFds& closer,
                                                         BlockingCalls& calls, UniqueFd socket,
                                                         Peer peer, Admission admission,
                                                         uint32_t number,
                                                         std::function<void(Channel&)> receive) {
  std::unique_ptr<Channel> channel(new Channel(loop, closer, calls, std::move(socket),
                                               std::move(peer), std::move(admission), number));
  Channel* raw = channel.get();
  const absl::StatusOr<EventLoop::Watch> watch = loop.Add(
      channel->socket(), EPOLLIN, [raw, receive = std::move(receive)](uint32_t) { receive(*raw); },
      channel->admission_.user->loop_share);
  if (!watch.ok()) return watch.status();
  channel->watch_ = *watch;
  if (!channel->LookUpProgram()) return StatusFromErrno(EAGAIN, "no thread can be started");
  return channel;
}

bool Channel::LookUpProgram() {
  // No longer needed afterwards: the socket closes when the program exits.
  auto pidfd = std::make_shared<UniqueFd>(std::move(peer_.pidfd));
  if (peer_.is_own_user() || peer_.pid <= 0) return true;
  auto found = std::make_shared<std::shared_ptr<memory::AppMemory>>();
  constexpr uint64_t kDescriptorsOfCall = 1;  // beside the channel's own
  return Await(calls_.Run(
      admission_.user, kDescriptorsOfCall,
      [=, pid = peer_.pid, uid = peer_.uid] { *found = OpenProgram(pid, pidfd->get(), uid); },
      [=, this] {
        program_ = std::move(*found);
        Resume();
      }));
}

bool Channel::Await(uint64_t call) {
  if (call == 0) return false;
  call_ = call;
  loop_.Change(watch_, 0);
  return true;
}

void Channel::Resume() {
  call_ = 0;
  loop_.Change(watch_, EPOLLIN);
}

bool Channel::MayBindPrivilegedPorts() const {
  return KnownPrivilegedPorts(peer_, program_.get()).value_or(may_bind_privileged_ports_);
}

bool Channel::LookUpPrivilege(std::function<void()> done) {
  if (KnownPrivilegedPorts(peer_, program_.get()).has_value()) return false;
  auto found = std::make_shared<bool>(false);
  return Await(calls_.Run(
      admission_.user, 0,
      [found, program = program_, pid = peer_.pid, uid = peer_.uid] {
        Peer peer;
        peer.pid = pid;
        peer.uid = uid;
        *found = control::MayBindPrivilegedPorts(peer, program.get());
      },
      [this, found, done = std::move(done)] {
        Resume();
        may_bind_privileged_ports_ = *found;
        done();
      }));
}

void Channel::Disconnect() {
  calls_.Forget(std::exchange(call_, 0));
  loop_.Forget(std::exchange(watch_, 0));
  // The program may have sent descriptors to one of these sockets.
  for (UniqueFd* socket : {&socket_, &signal_}) {
    if (socket->valid()) closer_.Close(std::move(*socket), admission_.user);
  }
}

absl::StatusOr<UniqueFd> Channel::OpenSignal() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  signal_.Reset(ends[0]);
  return UniqueFd(ends[1]);
}

// Keeps a byte in the socket while events wait.
void Channel::Signal() {
  if (events_.empty() || is_signalled_ || !is_open()) return;
  const char byte = 1;
  is_signalled_ = send(signal_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

uint32_t Channel::WithdrawnBytes() {
  if (events_.empty() && is_signalled_) {
    is_signalled_ = false;
    ++withdrawn_bytes_;
  }
  return withdrawn_bytes_;
}

// After each change of events_.
void Channel::ChargeEvents() {
  events_share_ = QuotaShare::Forced(admission_.user->connection_events, events_.size());
}

void Channel::Push(const QueuedEvent& event) {
  events_.push_back(event);
  ChargeEvents();
  Signal();
}

QueuedEvent Channel::Pop() {
  const QueuedEvent event = events_.front();
  events_.pop_front();
  ChargeEvents();
  Signal();
  return event;
}

std::vector<QueuedEvent> Channel::RemoveEvents(uint32_t number) {
  const auto others = [number](const QueuedEvent& event) { return event.counts_for != number; };
  const auto first = std::find_if_not(events_.begin(), events_.end(), others);
  if (first == events_.end()) return {};
  const auto removed = std::stable_partition(first, events_.end(), others);
  std::vector<QueuedEvent> result(removed, events_.end());
  events_.erase(removed, events_.end());
  ChargeEvents();
  return result;
}

void Channel::ClearEvents() {
  events_.clear();
  ChargeEvents();
}

void Channel::RemoveMembershipEvents(uint32_t number) {
  std::erase_if(events_, [number](const QueuedEvent& event) { return event.membership == number; });
  ChargeEvents();
}

}  // namespace roci::control::cm
