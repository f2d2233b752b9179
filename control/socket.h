// Unix sockets as the daemon uses them: listening, who is at the other end, messages with
// descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/unique_fd.h"

namespace roci::control {

// A non-blocking listening socket of `type` (SOCK_SEQPACKET or SOCK_STREAM) named
// `directory`/`name` with file mode `mode`. Whatever has that name is replaced. The path may be
// longer than sun_path.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& directory, const std::string& name, int type,
                                    mode_t mode);
// Non-blocking; an invalid descriptor if nobody waits (any more).
UniqueFd AcceptUnix(int listener);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;  // invalid where the kernel has none
};
// Of the process that connected. PermissionDenied if it cannot be known; EMFILE, ENFILE.
absl::StatusOr<Peer> PeerOf(int socket);

enum class ReceiveResult { kMessage, kNothing, kClosed };
// Takes one message of a SOCK_SEQPACKET socket without waiting. Descriptors beside it go to `fds`.
// `size` may be larger than the buffer (the message was cut then). `fds_cut`: some descriptors are
// lost because the daemon could not hold more.
ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t& size,
                             std::vector<UniqueFd>& fds, bool& fds_cut);
// Sends one message without waiting. False if it did not go out whole.
bool SendMessage(int socket, std::span<const std::byte> message, std::span<const int> fds);
// Says on a new connection why it cannot be kept ("unasked" in abi/session.h).
void SendRefusal(int socket, const absl::Status& status);

}  // namespace roci::control
