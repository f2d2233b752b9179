#include "control/cm/channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "control/loop/errno_status.h"

namespace roci::control::cm {

std::unique_ptr<memory::AppMemory> Channel::OpenProgram(const Peer& peer) {
  if (peer.uid == geteuid() || peer.pid <= 0) return nullptr;
  int error = 0;
  auto program =
      memory::AppMemory::Open(peer.pid, peer.pidfd.get(), memory::Reach::kAddressSpace, &error);
  // The peer may have called exec on a set-user-ID program after it connected.
  if (program != nullptr && !program->AccessibleTo(peer.uid)) program.reset();
  return program;
}

absl::StatusOr<std::unique_ptr<Channel>> Channel::Create(EventLoop& loop, ForeignFds& closer,
                                                         UniqueFd socket, Peer peer,
                                                         Admission admission, uint32_t number,
                                                         std::function<void(Channel&)> receive) {
  std::unique_ptr<Channel> channel(
      new Channel(loop, closer, std::move(socket), std::move(peer), std::move(admission), number));
  // The pidfd is no longer needed: the socket closes when the program exits.
  channel->peer_.pidfd.Reset();
  Channel* raw = channel.get();
  const absl::StatusOr<EventLoop::Watch> watch = loop.Add(
      channel->socket(), EPOLLIN, [raw, receive = std::move(receive)](uint32_t) { receive(*raw); });
  if (!watch.ok()) return watch.status();
  channel->watch_ = *watch;
  return channel;
}

Channel::~Channel() {
  if (watch_ != 0) loop_.Forget(watch_);
  // The program may have sent descriptors to either of the first two.
  for (UniqueFd* socket : {&socket_, &signal_, &signal_far_}) {
    closer_.Close(std::move(*socket), admission_.user);
  }
}

absl::StatusOr<UniqueFd> Channel::OpenSignal() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return StatusFromErrno(errno, "socketpair");
  }
  signal_.Reset(ends[0]);
  UniqueFd far(ends[1]);
  signal_far_.Reset(fcntl(far.get(), F_DUPFD_CLOEXEC, 0));
  if (!signal_far_.valid()) return StatusFromErrno(errno, "fcntl");
  return far;
}

// One byte lies in the socket while an event waits.
void Channel::UpdateSignal() {
  const bool wanted = !events_.empty();
  if (wanted == signalled_ || !is_open()) return;
  char byte = 1;
  if (wanted) {
    signalled_ = send(signal_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
  } else {
    signalled_ = false;
    [[maybe_unused]] const ssize_t n = recv(signal_far_.get(), &byte, 1, MSG_DONTWAIT);
  }
}

void Channel::Push(const QueuedEvent& event) {
  events_.push_back(event);
  UpdateSignal();
}

QueuedEvent Channel::Pop() {
  const QueuedEvent event = events_.front();
  events_.pop_front();
  UpdateSignal();
  return event;
}

std::vector<QueuedEvent> Channel::RemoveEvents(uint32_t number) {
  const auto others = [number](const QueuedEvent& event) { return event.counts_for != number; };
  const auto first = std::find_if_not(events_.begin(), events_.end(), others);
  if (first == events_.end()) return {};
  const auto removed = std::stable_partition(first, events_.end(), others);
  std::vector<QueuedEvent> result(removed, events_.end());
  events_.erase(removed, events_.end());
  UpdateSignal();
  return result;
}

void Channel::ClearEvents() {
  events_.clear();
  UpdateSignal();
}

void Channel::RemoveMembershipEvents(uint32_t number) {
  std::erase_if(events_, [number](const QueuedEvent& event) { return event.membership == number; });
  UpdateSignal();
}

}  // namespace roci::control::cm
