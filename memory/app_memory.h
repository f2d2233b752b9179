// Access to the memory of one program by system calls: correct for every kind of memory, one or a
// few calls per batch.
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

/// Direction of a copy.
enum class Direction : uint8_t {
  kFromApp,  ///< Read: program memory -> daemon.
  kToApp,    ///< Write: daemon -> program memory.
};

/// How copies address the memory.
enum class Reach : uint8_t {
  /// Through an open /proc/PID/mem, which stays bound to one address space after exec.
  kAddressSpace,
  /// By process number (process_vm_readv/writev): twice as fast for long transfers. The process may
  /// call exec between the check and a write, which then reaches the new program. Only for programs
  /// of the daemon's own user, where this crosses no privilege boundary.
  kProcess,
};

/// Whether `fd` may be an open /proc/PID/mem for reading and writing: a file of procfs with the
/// same mode. Neither this call nor closing such a file blocks.
bool MayBeMemoryOfProcess(int fd);

/// The memory of one program. Control creates it, any lcore uses it; const members are thread-safe.
/// It must outlive every SegmentList and KeyTable that refers to it.
///
/// Unless stated otherwise, a program can block these functions for any time: the kernel takes the
/// lock of the address space and the lock of exec, and may need pages that the program serves
/// itself. The control thread must not call them; an lcore calls them only if another thread can
/// take over its loop.
class AppMemory {
 public:
  /// Opens the process of `pidfd` (from SO_PEERPIDFD, or pidfd_open of the SO_PEERCRED pid); `pid`
  /// is its number in this PID namespace. Duplicates `pidfd`; -1: the kernel offers none, only the
  /// number is used. Null on failure, with *error an errno: ESRCH the process has ended, EPERM
  /// access is not permitted.
  static std::unique_ptr<AppMemory> Open(pid_t pid, int pidfd, Reach reach, int* error);
  /// Takes ownership of `mem_fd`, a /proc/self/mem that the program itself has opened for reading
  /// and writing. Possession of such a descriptor is permission to access that address space, so
  /// nothing else is checked. `pid`: the process that connected; 0: not visible in this PID
  /// namespace. Makes no call that a FUSE server could answer. Null on failure, with *error an
  /// errno and `mem_fd` still owned by the caller: EBADF no such file, ESRCH the address space no
  /// longer exists, EPERM it is not the address space of process `pid`.
  static std::unique_ptr<AppMemory> Adopt(int mem_fd, pid_t pid, int pidfd, Reach reach,
                                          int* error);
  /// The memory of this process, for access to file mappings by system calls: an unreadable page is
  /// then an error and not a SIGBUS. Null if it cannot be opened. Thread-safe.
  static const AppMemory* OwnProcess();
  ~AppMemory();
  AppMemory(const AppMemory&) = delete;
  AppMemory& operator=(const AppMemory&) = delete;

  /// 0: see has_process(). pid(), is_foreign() and has_process() do not block.
  pid_t pid() const { return pid_; }
  /// Whether its address space no longer exists: the program exited or called exec. One system
  /// call.
  bool IsGone() const;
  /// A program of another user than the daemon's. It must not block a thread that others need.
  bool is_foreign() const { return reach_ == Reach::kAddressSpace; }

  /// Whether the number of the program's process is known. False if the process is not visible in
  /// this PID namespace, or if only the program itself may open its memory. Then facts read about a
  /// process must not be attributed to this program.
  bool has_process() const { return pid_ > 0; }

  /// Whether the same program still runs in the process: false after it exited or called exec, even
  /// if another process shares its memory (CLONE_VM). A few system calls. True also means that
  /// facts read about the process before (its capabilities) belong to this program. Without
  /// has_process(): whether any process uses the address space.
  bool Alive() const;

  /// Whether `uid` may access the process: it runs as that user, has no more rights than the user
  /// (set-id programs, file capabilities), and is dumpable (prctl(2), PR_SET_DUMPABLE; ptrace(2),
  /// "access mode checking"). A program that gave up another user's rights without exec is refused
  /// as well. The answer is about the program that was opened.
  bool AccessibleTo(uid_t uid) const;

  /// Copies between `local` and `remote`, which must have the same total length and at most IOV_MAX
  /// entries each. Returns how many bytes, from the front, were certainly copied: all, fewer after
  /// a fault at a remote address, 0 if the process has ended.
  size_t Transfer(Direction direction, std::span<const iovec> local,
                  std::span<const iovec> remote) const;

  /// The lock for a read and a write that form one atomic on the 8 bytes at `va`, against atomics
  /// of other lcores. All objects of the same process share the locks.
  std::unique_lock<std::mutex> LockAtomic(uint64_t va) const {
    return std::unique_lock((*atomic_locks_)[va / sizeof(uint64_t) % kAtomicLocks]);
  }

  /// Copies one contiguous range. kOk or kFault.
  MemoryStatus Read(uint64_t va, std::span<std::byte> to) const;
  MemoryStatus Write(uint64_t va, std::span<const std::byte> from) const;

 private:
  static constexpr size_t kAtomicLocks = 64;
  using AtomicLocks = std::array<std::mutex, kAtomicLocks>;
  // Identifies a program: process number, or (device, inode) of the memory's file.
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
