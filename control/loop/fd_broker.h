// The descriptor broker: a small child process of the daemon that receives and closes the
// descriptors that programs pass.
//
// Closing a file can block: a socket with SO_LINGER and unsent data, or a FUSE file whose server
// does not answer FLUSH. (Every close(2) sends FLUSH, not only the last one, and not even SIGKILL
// interrupts it.) The kernel also closes descriptors when their message is dropped: received
// without room for them, or unread in a Unix socket that is closed. Hence the daemon never has a
// blocking foreign descriptor in its table, and does not close its own sockets alone:
// - The daemon peeks at each message (MSG_PEEK: the kernel reports descriptors and installs none).
//   The broker receives messages with descriptors. It passes on those whose close does not block
//   while the broker keeps a copy (local files, DMA buffers, files of procfs such as the memory of
//   a process), and describes the others.
// - The broker closes the sockets in which foreign descriptors may wait.
// The broker has one closing thread per account (a user of the daemon). A close that blocks delays
// only its own account.
//
// The broker is a process, not a thread: a thread in an uninterruptible close would keep the daemon
// from ending. It has its own descriptor table: with a shared one (CLONE_FILES), the daemon's lock,
// sockets and ports would stay open as long as one close blocks.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "control/loop/request_limits.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// The broker as its daemon sees it.
struct FdBroker {
  UniqueFd socket;  // SOCK_SEQPACKET; the broker exits when this end is closed
  pid_t pid = 0;
};

// Forks the broker. Call only while the process has one thread.
absl::StatusOr<FdBroker> StartFdBroker();

// Limits what waits in the daemon's end of the broker's socket to a few requests. All others wait
// in the daemon, where users take turns.
void LimitBrokerQueue(int socket);

// Most descriptors in one message (SCM_MAX_FD of the kernel).
inline constexpr uint32_t kMaxMessageFds = 253;

enum class BrokerCommand : uint32_t {
  kReceive,  // receives a message of the passed socket, keeps its descriptors. Answer: kReceived
  kDrop,     // drops a message of the passed socket. Answer: kClosed, possibly late
  kRelease,  // closes the descriptors kept for `ticket`. Answer: kClosed
  kClose,    // closes the passed descriptor. Answer: kClosed
};
struct BrokerRequest {
  BrokerCommand command;
  uint32_t reserved;
  uint64_t ticket;   // repeated in the answer
  uint64_t account;  // selects the closing thread
};

struct BrokerFile {
  int32_t fd;           // its number in the broker
  uint32_t passed_on;   // 1: the answer carries it, in this order
  uint64_t device = 0;  // st_dev of stat(2)
  uint64_t inode = 0;   // 0: not opened (O_PATH), which proves no right to the file
};
enum class BrokerAnswer : uint32_t {
  kReceived,
  kNoMessage,  // no message, or no room for its descriptors: nothing is kept
  kClosed,
};
struct BrokerResponse {
  BrokerAnswer answer;
  uint32_t fd_count;  // of the message; only the first kMaxRequestFds are in `files`
  uint64_t ticket;
  uint64_t size;  // of the message in bytes; may exceed the size of `bytes`
  std::array<BrokerFile, kMaxRequestFds> files;
  std::array<std::byte, kMaxRequestBytes> bytes;
};

}  // namespace roci::control
