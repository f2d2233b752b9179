// Finds out of what kind the app's own memory is, so that the daemon can be told the best way to
// reach it.
#pragma once

#include <cstdint>

namespace roci::provider {

/// How the daemon reaches a run of the app's memory.
enum class ExtentKind : uint8_t {
  kProcessVm = 0,  ///< process_vm_readv/writev: always right.
  kFile = 1,       ///< `fd` is the file that is mapped here; the daemon may map it too.
  kMapFiles =
      2,  ///< No descriptor, but /proc/PID/map_files names it; only a root daemon can open that.
  kConverted =
      3,  ///< As kFile; the file is our own sealed memfd, put under private memory by convert.h.
};

struct MemoryExtent {
  uint64_t va;
  uint64_t length;       ///< Bytes, at least 1.
  uint64_t file_offset;  ///< Offset of `va` in the file. kFile, kMapFiles, kConverted.
  uint64_t vma_begin;    ///< kMapFiles: the line of /proc/PID/maps, hence the name in map_files.
  uint64_t vma_end;
  int fd;         ///< kFile, kConverted: descriptor of the file, else -1.
  bool close_fd;  ///< `fd` was opened for this list; CloseExtents closes it. Otherwise it is the
                  ///< app's, or convert.h's.
  bool writable;  ///< The daemon may map it for writing.
  ExtentKind kind;
};

/// Extents of one registration, sorted and adjacent. What does not fit goes through process_vm in
/// the last one.
struct MemoryExtents {
  static constexpr uint32_t kCapacity = 16;
  uint32_t count = 0;
  /// Some of it is a file (other than a known one): if that is cut short, touching the memory
  /// raises SIGBUS in the app.
  bool file_backed = false;
  MemoryExtent items[kCapacity];
};

/// A file whose mappings the caller knows: they are described as kConverted with this descriptor,
/// which stays the caller's.
struct KnownFile {
  uint64_t device;  ///< dev_t
  uint64_t inode;
  int fd;
};

/// Describes [va, va + length), length >= 1. 0, or an errno as Linux gives it for ibv_reg_mr:
/// EFAULT where a page is not mapped or not readable, or not writable although `writable` asks for
/// it; EINVAL where the range wraps. `on_demand`: holes are allowed (IBV_ACCESS_ON_DEMAND) and
/// everything is process_vm. No malloc, no locks of its own; errno is kept.
int DescribeMemory(uint64_t va, uint64_t length, bool writable, bool on_demand,
                   const KnownFile* known, MemoryExtents* extents);

/// Closes the descriptors that DescribeMemory opened, after they were sent to the daemon.
void CloseExtents(MemoryExtents* extents);

/// Opens /proc/self/mem for the daemon; the caller closes the descriptor. It stays with this
/// address space, and a forked child inherits it: nothing to keep in a program that gives up rights
/// by forking. -1 with errno: EACCES in a program that has given up another user's rights without
/// exec or is not dumpable (PR_SET_DUMPABLE), ENOENT without a /proc.
int OpenOwnMemory();

/// Lets process `daemon_pid` use process_vm on this process where Yama's ptrace_scope is 1.
/// Harmless elsewhere.
void AllowAccessBy(int daemon_pid);

}  // namespace roci::provider
