// The descriptor broker: a small process of the daemon's that receives the descriptors which other
// programs pass, and closes them.
//
// Closing a file can wait for its owner: a socket with SO_LINGER and unsent data, a FUSE file whose
// server withholds the answer to FLUSH (which every close(2) asks for, not only the last one, and
// which not even SIGKILL interrupts). The same close happens where a message with descriptors is
// dropped: received without room for them, or left in a Unix socket that is closed. Hence a
// descriptor of somebody else's never gets into the daemon's table, and the daemon's sockets are
// not closed by the daemon alone:
// - The daemon looks at a message without taking it (MSG_PEEK; the kernel then says whether there
//   are descriptors, and installs none). Messages with descriptors are received by the broker.
//   It passes on those that are harmless to close as long as it keeps a copy (local files, DMA
//   buffers, files of procfs such as the memory of a process), and tells what it knows of the
//   others.
// - Sockets that others could have sent descriptors to are passed to the broker to be closed.
// Inside the broker one thread per account (a user of the daemon's) closes; who blocks it delays
// that account alone.
//
// A process and not a thread: a thread that cannot be interrupted would keep the daemon from
// ending. Its table is its own: a table shared with the daemon (CLONE_FILES) would stay, and with
// it the daemon's lock, sockets and ports, for as long as one close waits.
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
  UniqueFd socket;  // SOCK_SEQPACKET; the broker ends when it is closed
  pid_t pid = 0;
};

// Forks. Only while the process has one thread.
absl::StatusOr<FdBroker> StartFdBroker();

// How many descriptors a message can have (SCM_MAX_FD of the kernel).
inline constexpr uint32_t kMaxMessageFds = 253;

enum class BrokerCommand : uint32_t {
  kReceive,  // a message of the socket beside this; its descriptors are kept. Answer: kReceived
  kDrop,     // the same, but the message is dropped, and the answer (kClosed) may take its time
  kRelease,  // closes what `ticket` keeps. Answer: kClosed
  kClose,    // closes the descriptor beside this. Answer: kClosed
};
struct BrokerRequest {
  BrokerCommand command;
  uint32_t reserved;
  uint64_t ticket;   // in the answer again
  uint64_t account;  // whose closing it is
};

struct BrokerFile {
  int32_t fd;           // its number in the broker
  uint32_t passed_on;   // 1: beside the answer, in this order
  uint64_t device = 0;  // of the file, as stat(2) has it
  uint64_t inode = 0;
};
enum class BrokerAnswer : uint32_t {
  kReceived,
  kNoMessage,  // there was none, or no room for its descriptors: nothing is kept
  kClosed,
};
struct BrokerResponse {
  BrokerAnswer answer;
  uint32_t fd_count;  // of the message; only the first kMaxRequestFds are in `files`
  uint64_t ticket;
  uint64_t size;  // of the message, bytes; may be longer than `bytes`
  std::array<BrokerFile, kMaxRequestFds> files;
  std::array<std::byte, kMaxRequestBytes> bytes;
};

}  // namespace roci::control
