// Connecting to the daemon, and the exchange of a request and its response.
#include "verbs_provider/session/session_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "verbs_provider/base/clock.h"
#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/base/no_cancellation.h"
#include "verbs_provider/rings/give_way.h"

namespace roci::provider {
namespace {

// Fills in the address of the socket at `path`. If the path is too long for sun_path, the address
// goes through a descriptor of its directory, `*directory`, which the caller closes after
// connecting (-1: not needed).
int MakeAddress(const char* path, sockaddr_un* address, int* directory) {
  *address = {};
  *directory = -1;
  address->sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length < sizeof(address->sun_path)) {
    memcpy(address->sun_path, path, length + 1);
    return 0;
  }
  const char* slash = strrchr(path, '/');
  char folder[4096];
  if (slash == nullptr || static_cast<size_t>(slash - path) >= sizeof(folder)) return ENAMETOOLONG;
  memcpy(folder, path, static_cast<size_t>(slash - path));
  folder[slash - path] = '\0';
  *directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (*directory < 0) return errno;
  const int written = snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s",
                               *directory, slash + 1);
  return static_cast<size_t>(written) < sizeof(address->sun_path) ? 0 : ENAMETOOLONG;
}

// 0 or an errno.
int ConnectTo(int fd, const char* path) {
  sockaddr_un address;
  int directory;
  const int error = MakeAddress(path, &address, &directory);
  if (error != 0) return error;
  int result;
  do {
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  const int refusal = result == 0 ? 0 : errno;
  if (directory >= 0) close(directory);
  return refusal;
}

void CollectFds(msghdr* message, ReceivedFds* received) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      received->Add(fd);
    }
  }
}

// Whether the daemon refuses the connection (abi/session.h).
bool IsRefusal(const roci_abi_response& response, size_t size) {
  return size == sizeof(response) && response.serial == 0 && response.error > 0;
}

// How long a caller spins: a daemon that runs on another processor answers most requests in this
// time.
constexpr uint64_t kSpinNs = 15'000;
// How often the caller then yields before it sleeps.
constexpr int kYieldsBeforeSleep = 40;

uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

// False if there is no message yet. Otherwise `*result` is recvmsg's result.
bool TryReceive(int socket, const msghdr& fresh, msghdr* message, ssize_t* result) {
  *message = fresh;
  *result = recvmsg(socket, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  return *result >= 0 || (errno != EAGAIN && errno != EINTR);
}

// Whether sendmsg(2) failed for want of something in this process: nothing was sent, so the daemon
// is as before. (ETOOMANYREFS: the user has more descriptors in flight than RLIMIT_NOFILE.)
bool IsShortage(int error) { return error == ETOOMANYREFS || error == ENOBUFS || error == ENOMEM; }

// 0 or an errno.
int Send(int socket, const roci_abi_request* request, size_t size, const FdsToSend* send) {
  iovec part = {const_cast<roci_abi_request*>(request), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * FdsToSend::kCapacity)] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (send != nullptr && send->count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * send->count);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * send->count);
    memcpy(CMSG_DATA(rights), send->fds, sizeof(int) * send->count);
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  return n == static_cast<ssize_t>(size) ? 0 : EIO;
}

// The error that the daemon sent before it closed the connection, or EIO.
int Refusal(int socket) {
  roci_abi_plain_response response;
  const ssize_t n = recv(socket, &response, sizeof(response), MSG_DONTWAIT);
  const bool refused = n > 0 && IsRefusal(response.head, static_cast<size_t>(n));
  return refused ? response.head.error : EIO;
}

}  // namespace

void ReceivedFds::Add(int fd) {
  if (count_ == kCapacity) {
    close(fd);
    return;
  }
  fds_[count_++] = fd;
}

int ReceivedFds::Take(uint32_t index) {
  if (index >= count_) return -1;
  const int fd = fds_[index];
  fds_[index] = -1;
  return fd;
}

void ReceivedFds::CloseAll() {
  for (uint32_t i = 0; i < count_; ++i) {
    if (fds_[i] >= 0) close(fds_[i]);
  }
  count_ = 0;
}

int SessionClient::Connect(const char* socket_path, std::atomic<uint32_t>* state, int socket_file) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const timeval limit = {kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // also bounds connect
  int error = ConnectTo(fd, socket_path);
  if ((error == ENOENT || error == ENOTDIR || error == EACCES) && socket_file >= 0) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", socket_file);
    if (ConnectTo(fd, path) == 0) error = 0;
  }
  if (error == 0) return Adopt(fd, state);
  if (fd >= 0) close(fd);
  return error;
}

int SessionClient::Adopt(int fd, std::atomic<uint32_t>* state) {
  const timeval limit = {kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) peer_pid_ = peer.pid;
  socket_.Hold(fd);
  state_ = state;
  state_->store(kSessionAlive, std::memory_order_relaxed);
  return 0;
}

void SessionClient::Close() { socket_.Close(); }

void SessionClient::DropInChild() { Close(); }

bool SessionClient::CheckPeer() {
  const KeepErrno keep_errno;
  if (!alive()) return false;
  char byte;
  const ssize_t n = recv(socket_.fd(), &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
  // A message is the answer to another thread's request.
  const bool gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  if (gone) MarkDead();
  return !gone;
}

// The daemon answers most requests within microseconds, which is less than a sleep takes. So the
// caller first spins, then yields (to the daemon, if both share a processor), then sleeps.
ssize_t SessionClient::Receive(int socket, msghdr* message) {
  const msghdr fresh = *message;
  ssize_t n = -1;
  if (spins_.Allows()) {
    const uint64_t end = MonotonicNs() + kSpinNs;
    bool answered;
    do {
      answered = TryReceive(socket, fresh, message, &n);
    } while (!answered && MonotonicNs() < end);
    spins_.Note(answered);
    if (answered) return n;
  }
  for (int i = 0; i < kYieldsBeforeSleep; ++i) {
    if (TryReceive(socket, fresh, message, &n)) return n;
    if (!TryYield()) break;
  }
  do {
    *message = fresh;
    n = recvmsg(socket, message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  return n;
}

// A malformed response ends the session with EIO: later messages cannot be trusted.
int SessionClient::Exchange(roci_abi_request* request, size_t request_size,
                            const ResponseBuffer& buffer, const FdsToSend* send,
                            ReceivedFds* received) {
  roci_abi_response* response = buffer.response;
  request->size = static_cast<uint32_t>(request_size);
  request->serial = ++serial_;
  const int socket = socket_.fd();
  if (socket < 0) {  // its number may be another file's by now
    MarkDead();
    return EIO;
  }
  const int send_error = Send(socket, request, request_size, send);
  if (IsShortage(send_error)) return send_error;
  if (send_error != 0) {
    MarkDead();
    return Refusal(socket);
  }
  iovec part = {response, buffer.size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * ReceivedFds::kCapacity)];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = Receive(socket, &message);
  if (n < 0 && errno == ECONNRESET) {  // closed with the request unread: there may be a refusal
    MarkDead();
    return Refusal(socket);
  }
  if (n > 0) CollectFds(&message, received);
  // A response with an error may end after its head.
  const bool whole = n >= static_cast<ssize_t>(buffer.least) ||
                     (n >= static_cast<ssize_t>(sizeof(*response)) && response->error != 0);
  const bool refused = n > 0 && IsRefusal(*response, static_cast<size_t>(n));
  if (refused) {
    MarkDead();
    return response->error;
  }
  if (n <= 0 || !whole || (message.msg_flags & MSG_TRUNC) != 0 ||
      response->serial != request->serial || response->error < 0) {
    MarkDead();
    return EIO;
  }
  if (response->error != 0) return response->error;
  if (received->count() == response->fd_count) return 0;
  if ((message.msg_flags & MSG_CTRUNC) != 0) return EMFILE;
  MarkDead();
  return EIO;
}

int SessionClient::Transact(roci_abi_request* request, size_t request_size,
                            const ResponseBuffer& buffer, const FdsToSend* send,
                            ReceivedFds* received) {
  const NoCancellation no_cancellation;  // the mutex would never be released
  if (!alive()) return SetErrno(EIO);
  ReceivedFds unwanted;
  ReceivedFds* fds = received != nullptr ? received : &unwanted;
  int error;
  {
    const KeepErrno keep_errno;
    pthread_mutex_lock(&mutex_);
    error = alive() ? Exchange(request, request_size, buffer, send, fds) : EIO;
    pthread_mutex_unlock(&mutex_);
  }
  return SetErrno(error);
}

int CallWithHandle(SessionClient& client, uint32_t command, uint32_t handle) {
  roci_abi_handle_request request = {};
  roci_abi_plain_response response = {};
  request.handle = handle;
  return client.Call(command, &request, &response);
}

}  // namespace roci::provider
