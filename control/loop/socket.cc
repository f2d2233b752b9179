#include "control/loop/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"
#include "control/loop/request_limits.h"
#include "verbs_provider/abi/session.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace roci::control {
namespace {

constexpr int kBacklog = 128;

// Since Linux 6.9 a pidfd's inode number identifies the process until the next boot.
uint64_t ProcessOf(pid_t pid, int pidfd) {
  constexpr uint64_t kByPidfd = uint64_t{1} << 63;
  constexpr auto kPidFileSystem = 0x50494446;  // PID_FS_MAGIC
  if (pid > 0) return static_cast<uint64_t>(pid);
  struct statfs system;
  struct stat file;
  if (fstatfs(pidfd, &system) != 0 || system.f_type != kPidFileSystem || fstat(pidfd, &file) != 0) {
    return 0;
  }
  return file.st_ino | kByPidfd;
}

// Reads without removing. There is no room for descriptors, so the kernel reports any as truncated;
// it closes none, since they stay in the socket with the message.
ssize_t Peek(int socket, std::span<std::byte> buffer, bool& has_descriptors) {
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC);
  has_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  return count;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenUnix(const std::string& directory, const std::string& name, int type,
                                    mode_t mode) {
  const UniqueFd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return StatusFromErrno(errno, directory);
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return StatusFromErrno(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path, sizeof(address.sun_path),
                                   "/proc/self/fd/%d/%s", folder.get(), name.c_str());
  assert(length > 0 && static_cast<size_t>(length) < sizeof(address.sun_path));
  (void)length;
  unlinkat(folder.get(), name.c_str(), 0);
  const mode_t old_mask = umask(0777 & ~mode);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(old_mask);
  const std::string path = directory + "/" + name;
  if (bound != 0) return StatusFromErrno(error, path);
  if (listen(fd.get(), kBacklog) != 0) return StatusFromErrno(errno, path);
  return fd;
}

UniqueFd AcceptUnix(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

absl::StatusOr<Peer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return StatusFromErrno(errno, "SO_PEERCRED");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  int pidfd = -1;
  size = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) {
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
    if (pidfd < 0 && credentials.pid > 0 && (errno == EMFILE || errno == ENFILE)) {
      return StatusFromErrno(errno, "pidfd_open");
    }
  }
  peer.pidfd.Reset(pidfd);
  peer.process = ProcessOf(peer.pid, pidfd);
  peer.has_rights_of_daemon = HasRightsOfDaemon(peer.pid, peer.uid);
  return peer;
}

bool Peer::is_own_user() const { return has_rights_of_daemon && uid == geteuid(); }

ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t& size) {
  bool has_descriptors = false;
  const ssize_t count = Peek(socket, buffer, has_descriptors);
  if (count < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? ReceiveResult::kNothing
                                                                     : ReceiveResult::kClosed;
  }
  if (count == 0) return ReceiveResult::kClosed;
  size = static_cast<size_t>(count);
  if (has_descriptors) return ReceiveResult::kDescriptors;
  recv(socket, nullptr, 0, MSG_DONTWAIT);
  return ReceiveResult::kMessage;
}

ssize_t ReceiveStream(int socket, std::span<char> buffer) {
  bool has_descriptors = false;
  const ssize_t count = Peek(socket, std::as_writable_bytes(buffer), has_descriptors);
  if (count <= 0) return count;
  if (has_descriptors) {
    errno = EPROTO;
    return -1;
  }
  return recv(socket, buffer.data(), static_cast<size_t>(count), MSG_DONTWAIT);
}

bool SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds,
                 SendMode mode) {
  assert(fds.size() <= kMaxRequestFds);
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxRequestFds)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  const ssize_t count =
      sendmsg(socket, &header, MSG_NOSIGNAL | (mode == SendMode::kNonblocking ? MSG_DONTWAIT : 0));
  return count == static_cast<ssize_t>(message.size());
}

void SendRefusal(int socket, const absl::Status& status) {
  roci_abi_plain_response response{};
  const int error = ErrnoOf(status);
  response.head.error = error == EMFILE ? ENFILE : error;  // see Session::Send
  SendMessage(socket, std::as_bytes(std::span(&response, 1)), {});
}

}  // namespace roci::control
