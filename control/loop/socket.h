// Unix sockets as the daemon uses them: listening, who is at the other end, messages with
// descriptors.
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

// A non-blocking listening socket of `type` (SOCK_SEQPACKET or SOCK_STREAM) named
// `directory`/`name` with file mode `mode`. Whatever has that name is replaced. The path may be
// longer than sun_path.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& directory, const std::string& name, int type,
                                    mode_t mode);
// Non-blocking; an invalid descriptor if nobody waits (any more).
UniqueFd AcceptUnix(int listener);

struct Peer {
  // 0: a process that this PID namespace does not show (a container beside the daemon's), of which
  // nothing can be found out by number, and which therefore has no privileges.
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;  // invalid where the kernel has none
  // Equal for connections of the same process; 0: unknown.
  uint64_t process = 0;
};
// Of the process that connected. EMFILE, ENFILE.
absl::StatusOr<Peer> PeerOf(int socket);

enum class ReceiveResult {
  kMessage,
  kNothing,
  kClosed,
  kDescriptors,  // the message has some: it is not taken (see control/loop/fd_broker.h)
};
// Takes one message of a SOCK_SEQPACKET socket without waiting. `size` may be larger than the
// buffer (the message was cut then). The bytes are there with kDescriptors as well.
ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t& size);
// Reads what is there of a SOCK_STREAM socket, without waiting. As recv(2); descriptors among it
// are not taken: -1 with errno EPROTO.
ssize_t ReceiveStream(int socket, std::span<char> buffer);
// Sends one message without waiting. False if it did not go out whole.
bool SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds);
// Says on a new connection why it cannot be kept ("unasked" in abi/session.h).
void SendRefusal(int socket, const absl::Status& status);

}  // namespace roci::control
