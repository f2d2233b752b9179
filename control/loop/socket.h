// The daemon's Unix sockets: listening, credentials of the peer, messages with descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// The file mode of a listening socket: for every user, or for the daemon's only.
constexpr mode_t SocketMode(bool is_public) { return is_public ? 0666 : 0600; }

// A non-blocking listening socket of `type` (SOCK_SEQPACKET or SOCK_STREAM) named
// `directory`/`name` with file mode `mode`. Replaces an existing file of that name. The path may be
// longer than sun_path.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& directory, const std::string& name, int type,
                                    mode_t mode);
// Returns a non-blocking socket; an invalid one, with errno, if no connection waits.
UniqueFd AcceptUnix(int listener);

struct Peer {
  // 0: a process outside the daemon's PID namespace (a sibling container). It cannot be inspected
  // by number and therefore has no privileges.
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;  // invalid: not available
  // The same for all connections of one process; 0: unknown.
  uint64_t process = 0;
  // As HasRightsOfDaemon() (privilege.h) said when the process connected.
  bool has_rights_of_daemon = false;
  // The daemon's own user, with everything that the daemon may do.
  bool is_own_user() const;
};
// The process that connected. Fails with EMFILE or ENFILE.
absl::StatusOr<Peer> PeerOf(int socket);

enum class ReceiveResult {
  kMessage,
  kNothing,
  kClosed,
  kDescriptors,  // the message has descriptors and stays queued (see control/loop/fd_broker.h)
};
// Receives one message of a SOCK_SEQPACKET socket without blocking. If `size` exceeds the buffer,
// the message was truncated. The bytes are also filled in with kDescriptors.
ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t& size);
// Reads from a SOCK_STREAM socket without blocking. Returns as recv(2); -1 with errno EPROTO if
// descriptors are queued, which are not received.
ssize_t ReceiveStream(int socket, std::span<char> buffer);
enum class SendMode : uint8_t { kNonblocking, kBlocking };
// Sends one message. False: it was not sent completely.
bool SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds,
                 SendMode mode = SendMode::kNonblocking);
// Sends the reason for a refusal on a new connection ("unasked" in abi/session.h).
void SendRefusal(int socket, const absl::Status& status);

}  // namespace roci::control
