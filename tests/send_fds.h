// Sends descriptors over a Unix socket (unix(7), SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace roci::testing {

// Most that Linux passes in one message (SCM_MAX_FD).
inline constexpr size_t kMostFdsInMessage = 253;

// Sends `bytes` in one message, with the descriptors `fds`, at most kMostFdsInMessage. As
// sendmsg(2).
inline ssize_t SendFds(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                       int flags = MSG_NOSIGNAL) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFdsInMessage)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &message, flags);
}

// The bytes of one object.
template <class Object>
ssize_t SendFdsWith(int socket, const Object& object, std::span<const int> fds,
                    int flags = MSG_NOSIGNAL) {
  return SendFds(socket, std::as_bytes(std::span(&object, 1)), fds, flags);
}

}  // namespace roci::testing
