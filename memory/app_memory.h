// The memory of one app process, reached with system calls: correct for every kind of memory, a
// call or a few per batch.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "memory/types.h"

namespace roci::memory {

/// Which way bytes go.
enum class Direction : uint8_t {
  kFromApp,  ///< Read: app memory -> daemon.
  kToApp,    ///< Write: daemon -> app memory.
};

/// How transfers address the memory.
enum class Reach : uint8_t {
  /// Through an open /proc/PID/mem, which stays bound to one address space after exec.
  kAddressSpace,
  /// By process number (process_vm_readv/writev): twice as fast for long transfers. The process may
  /// call exec between the check and a write, which then reaches the new program. Only for programs
  /// of the daemon's own user, where this crosses no privilege boundary.
  kProcess,
};

/// Whether `fd` may be an open /proc/PID/mem for reading and writing: it is a file of procfs with
/// the same mode. Closing such a file never blocks. Never blocks.
bool MayBeMemoryOfProcess(int fd);

/// One app process. Made by control, used by any lcore; const members are thread-safe. A
/// SegmentList or KeyTable that refers to it must be gone before it is destroyed.
///
/// Unless it says otherwise, a function blocks as long as the process likes: the kernel takes the
/// lock of the address space and the one that exec holds, and may need pages that the process
/// serves itself. The control thread must not call it, and an lcore only where another thread takes
/// over.
class AppMemory {
 public:
  /// Opens the process behind `pidfd` (from SO_PEERPIDFD, or pidfd_open of the SO_PEERCRED pid),
  /// whose number in this pid namespace is `pid`. Takes its own copy of `pidfd`; pass -1 where the
  /// kernel offers none, and the number alone is used. Null on failure, with *error an errno: ESRCH
  /// the process is gone, EPERM it may not be accessed.
  static std::unique_ptr<AppMemory> Open(pid_t pid, int pidfd, Reach reach, int* error);
  /// Takes `mem_fd` over, a /proc/self/mem that the program has opened for reading and writing
  /// itself. Whoever has such a descriptor may access that address space, so nothing else needs to
  /// be known of the program. `pid`: the process that connected, 0 if this PID namespace does not
  /// show it. Makes no call that a FUSE server could answer. Null on failure, with *error an errno
  /// and `mem_fd` still the caller's: EBADF it is no such file, ESRCH the address space is gone,
  /// EPERM it is not that of process `pid`.
  static std::unique_ptr<AppMemory> Adopt(int mem_fd, pid_t pid, int pidfd, Reach reach,
                                          int* error);
  /// The memory of this process, to access file mappings by system calls: a page that cannot be
  /// read is a fault and no SIGBUS. Null if it cannot be opened. Thread-safe.
  static const AppMemory* OwnProcess();
  ~AppMemory();
  AppMemory(const AppMemory&) = delete;
  AppMemory& operator=(const AppMemory&) = delete;

  /// 0: see has_process(). Does not block, as is_foreign() and has_process().
  pid_t pid() const { return pid_; }
  /// Whether its address space is no more: the program exited or called exec. One system call.
  bool IsGone() const;
  /// A program of another user than the daemon's: it is not to make a thread wait that others need.
  bool is_foreign() const { return reach_ == Reach::kAddressSpace; }

  /// Whether it is known by number which process runs the program. Not of a process that this PID
  /// namespace does not show, or whose memory only the program itself may open. Without, nothing
  /// that is read about a process belongs to this program.
  bool has_process() const { return pid_ > 0; }

  /// Whether the same program still runs in the process: false after it exited or called exec, even
  /// if another process shares its memory (CLONE_VM). A few system calls. True also means
  /// that facts read about the process before (its capabilities) belong to this program. Without a
  /// process (has_process()): whether anybody uses the address space.
  bool Alive() const;

  /// Whether `uid` may look into the process: it runs as that user and has no more rights than the
  /// user (set-id programs, file capabilities), and it has not asked to be left alone (prctl(2),
  /// PR_SET_DUMPABLE; ptrace(2), "access mode checking"). A program that gave up another user's
  /// rights without a call of exec is refused as well. Holds for the program that was opened.
  bool AccessibleTo(uid_t uid) const;

  /// Moves bytes between `local` and `remote`, which must add up to the same length; each at most
  /// IOV_MAX long. Returns how many bytes (counted from the front) are sure to have been moved; all
  /// of them unless a remote address faulted or the process is gone (then 0).
  size_t Transfer(Direction direction, std::span<const iovec> local,
                  std::span<const iovec> remote) const;

  /// Held around a read and a write that are to be one atomic on the 8 bytes at `va`: makes those
  /// of several lcores atomic together. Objects that are of the same process have the same locks.
  std::unique_lock<std::mutex> LockAtomic(uint64_t va) const {
    return std::unique_lock((*atomic_locks_)[va / sizeof(uint64_t) % kAtomicLocks]);
  }

  /// One run of bytes. kOk or kFault.
  MemoryStatus Read(uint64_t va, std::span<std::byte> to) const;
  MemoryStatus Write(uint64_t va, std::span<const std::byte> from) const;

 private:
  static constexpr size_t kAtomicLocks = 64;
  using AtomicLocks = std::array<std::mutex, kAtomicLocks>;
  // What programs are told apart by: a process number, or (device, inode) of the memory's file.
  using Identity = std::pair<uint64_t, uint64_t>;
  static Identity IdentityOf(pid_t pid, int mem_fd);
  static std::shared_ptr<AtomicLocks> LocksOf(Identity program);
  AppMemory(pid_t pid, int mem_fd, Reach reach);
  bool KeepPidfd(int pidfd, int* error);
  std::optional<size_t> TransferByProcess(Direction direction, std::span<const iovec> local,
                                          std::span<const iovec> remote) const;
  size_t TransferByAddressSpace(Direction direction, std::span<const iovec> local,
                                std::span<const iovec> remote) const;

  pid_t pid_;
  std::shared_ptr<AtomicLocks> atomic_locks_;
  int pidfd_ = -1;   // -1: none
  int mem_fd_ = -1;  // /proc/PID/mem, bound to the address space itself; -1: none
  Reach reach_;
  uint64_t random_va_;  // AT_RANDOM of this program
};

}  // namespace roci::memory
