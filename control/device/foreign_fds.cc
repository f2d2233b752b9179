#include "control/device/foreign_fds.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "control/loop/errno_status.h"
#include "control/loop/log.h"
#include "control/loop/privilege.h"
#include "control/loop/socket.h"

namespace roci::control {

ForeignFiles::~ForeignFiles() {
  files_.clear();  // before the broker closes the last copies
  owner_.Release(ticket_);
}

absl::StatusOr<std::unique_ptr<ForeignFds>> ForeignFds::Create(EventLoop& loop, Users& users,
                                                               FdBroker broker) {
  std::unique_ptr<ForeignFds> fds(new ForeignFds(loop, users, std::move(broker)));
  ForeignFds* const self = fds.get();
  const absl::StatusOr<EventLoop::Watch> watch = loop.Add(
      self->broker_.socket.get(), EPOLLIN, [self](uint32_t events) { self->Handle(events); });
  if (!watch.ok()) return watch.status();
  self->watch_ = *watch;
  return fds;
}

ForeignFds::~ForeignFds() {
  loop_.Forget(std::exchange(watch_, 0));
  constexpr int kPatienceMs = 1000;
  pollfd wait{broker_.socket.get(), POLLOUT, 0};
  for (Flush(); !pending_.empty() && poll(&wait, 1, kPatienceMs) > 0; Flush()) {
    if (wait.revents & (POLLHUP | POLLERR)) break;
    // The broker does not read requests while its answers fill the socket.
    while (ReceiveAnswer()) {
    }
  }
  // The broker is stuck or gone. The process ends soon: do not close these here, close() may block.
  pending_.ForEach([](Pending& pending) { pending.fd.Release(); });
}

uint64_t ForeignFds::Receive(int socket, const std::shared_ptr<User>& user, Receiver receiver) {
  // The message's number of descriptors is not known yet. One message gets at most a sixteenth of a
  // small limit.
  const uint64_t limit = user->descriptors.limit();
  const uint64_t most = std::min<uint64_t>(kMaxMessageFds, std::max<uint64_t>(limit / 16, 1));
  const uint64_t charge = std::min(most, user->descriptors.left());
  if (charge == 0) return 0;
  return Ask(BrokerCommand::kReceive, UniqueFd(fcntl(socket, F_DUPFD_CLOEXEC, 0)),
             {.user = user,
              .descriptors = QuotaShare(user->descriptors, charge),
              .receiver = std::move(receiver),
              .done = {}});
}

uint64_t ForeignFds::Drop(int socket, const std::shared_ptr<User>& user,
                          std::function<void()> done) {
  return Ask(BrokerCommand::kDrop, UniqueFd(fcntl(socket, F_DUPFD_CLOEXEC, 0)),
             {.user = user,
              .descriptors = QuotaShare::Forced(user->descriptors, 1),
              .receiver = {},
              .done = std::move(done)});
}

void ForeignFds::Forget(uint64_t ticket) {
  const auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;
  it->second.receiver = nullptr;
  it->second.done = nullptr;
}

// Closes the socket synchronously if there is no memory for the request to the broker.
void ForeignFds::Close(UniqueFd socket, std::shared_ptr<User> user) noexcept {
  if (!socket.valid()) return;
  shutdown(socket.get(), SHUT_RDWR);
  try {
    QuotaShare descriptor = QuotaShare::Forced(user->descriptors, 1);
    Ask(BrokerCommand::kClose, std::move(socket),
        {.user = std::move(user),
         .descriptors = std::move(descriptor),
         .receiver = {},
         .done = {}});
  } catch (const std::bad_alloc&) {
    socket.Reset();
  }
}

void ForeignFds::Close(UniqueFd socket) noexcept {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  const bool is_trusted = HasRightsOfDaemon(credentials.pid, credentials.uid);
  try {
    Close(std::move(socket), users_.Get(credentials.uid, is_trusted));
  } catch (const std::bad_alloc&) {
    socket.Reset();
  }
}

void ForeignFds::Release(uint64_t number) noexcept {
  const auto it = tickets_.find(number);
  if (it == tickets_.end()) return;
  try {
    Enqueue(BrokerCommand::kRelease, number, it->second, {});
  } catch (const std::bad_alloc&) {
    it->second.is_to_be_released = has_unreleased_ = true;
  }
}

void ForeignFds::RetryReleases() {
  has_unreleased_ = false;
  for (auto& [number, ticket] : tickets_) {
    if (std::exchange(ticket.is_to_be_released, false)) Release(number);
  }
}

uint64_t ForeignFds::Ask(BrokerCommand command, UniqueFd fd, Ticket ticket) {
  const uint64_t number = ++last_ticket_;
  const auto kept = tickets_.emplace(number, std::move(ticket)).first;
  try {
    Enqueue(command, number, kept->second, std::move(fd));
  } catch (const std::bad_alloc&) {
    tickets_.erase(kept);
    throw;
  }
  return number;
}

void ForeignFds::Enqueue(BrokerCommand command, uint64_t number, const Ticket& ticket,
                         UniqueFd fd) {
  // The broker needs only a number that is unique per user.
  const auto account = reinterpret_cast<uintptr_t>(ticket.user.get());
  pending_.Push(account, {{command, 0, number, account}, std::move(fd)});
  Flush();
}

void ForeignFds::Flush() {
  while (!pending_.empty() && Send(pending_.Front())) pending_.Pop();
  if (watch_ != 0) loop_.Change(watch_, pending_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

bool ForeignFds::Send(const Pending& pending) const {
  const int fd = pending.fd.get();
  return SendMessage(broker_.socket.get(), std::as_bytes(std::span(&pending.request, 1)),
                     pending.fd.valid() ? std::span(&fd, 1) : std::span<const int>());
}

void ForeignFds::Handle(uint32_t events) {
  if (events & (EPOLLHUP | EPOLLERR)) {
    Log(LogArea::kDaemon, LogLevel::kError, "the descriptor broker process ended, shutting down");
    loop_.Forget(std::exchange(watch_, 0));
    return loop_.Stop();
  }
  if (events & EPOLLIN) ReceiveAnswer();
  if (has_unreleased_) RetryReleases();
  Flush();
}

// The daemon may receive the descriptors of an answer: the broker passes on only safe ones.
bool ForeignFds::ReceiveAnswer() {
  BrokerResponse response;
  iovec part{&response, sizeof(response)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxRequestFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  std::vector<UniqueFd> fds;
  fds.reserve(kMaxRequestFds);
  const ssize_t size = recvmsg(broker_.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < static_cast<ssize_t>(offsetof(BrokerResponse, files))) return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  const size_t count = rights != nullptr ? (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
  for (size_t i = 0; i < count; ++i) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
    fds.emplace_back(fd);
  }
  Deliver(response, std::move(fds));
  return true;
}

void ForeignFds::Deliver(const BrokerResponse& response, std::vector<UniqueFd> fds) {
  const auto it = tickets_.find(response.ticket);
  if (it == tickets_.end()) return;
  Ticket& ticket = it->second;
  const Receiver receiver = std::exchange(ticket.receiver, nullptr);
  if (response.answer != BrokerAnswer::kReceived) {
    const std::function<void()> done = std::exchange(ticket.done, nullptr);
    tickets_.erase(it);
    if (receiver) receiver(nullptr);
    if (done) done();
    return;
  }
  ticket.descriptors = QuotaShare();
  ticket.descriptors = QuotaShare::Forced(ticket.user->descriptors, response.fd_count);
  ForeignMessage message;
  try {
    message.files = FilesOf(response, std::move(fds));
  } catch (const std::bad_alloc&) {
    Release(response.ticket);
    if (receiver) receiver(nullptr);
    return;
  }
  message.bytes = std::span(response.bytes).first(std::min(response.size, response.bytes.size()));
  if (receiver) receiver(&message);
}

// If this throws, the broker still holds the files.
std::shared_ptr<ForeignFiles> ForeignFds::FilesOf(const BrokerResponse& response,
                                                  std::vector<UniqueFd> fds) {
  const size_t kept = std::min<size_t>(response.fd_count, response.files.size());
  auto files = std::make_shared<ForeignFiles>(*this, response.ticket, response.fd_count, kept);
  size_t next = 0;
  for (const BrokerFile& file : std::span(response.files).first(kept)) {
    UniqueFd local;
    if (file.passed_on != 0 && next < fds.size()) local = std::move(fds[next++]);
    files->Add({std::move(local), file.fd, file.device, file.inode});
  }
  return files;
}

}  // namespace roci::control
