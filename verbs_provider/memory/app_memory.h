// Describes the program's memory as extents, so that the daemon can choose the fastest access.
#pragma once

#include <cstdint>

namespace roci::provider {

/// How the daemon reaches an extent of the program's memory.
enum class ExtentKind : uint8_t {
  kProcessVm = 0,  ///< process_vm_readv/writev: works for all memory.
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
  uint64_t vma_begin;    ///< kMapFiles: the mapping's bounds, which name it in /proc/PID/map_files.
  uint64_t vma_end;
  int fd;         ///< kFile, kConverted: descriptor of the file, else -1.
  bool close_fd;  ///< CloseExtents closes `fd`. Otherwise the program or convert.h owns it.
  bool writable;  ///< The daemon may map it for writing.
  ExtentKind kind;
};

/// Extents of one registration, sorted and adjacent. If there are more than kCapacity, the last one
/// covers the rest and is kProcessVm.
struct MemoryExtents {
  static constexpr uint32_t kCapacity = 16;
  uint32_t count = 0;
  /// An extent is a mapping of a file other than the known one: after a truncation of the file,
  /// access raises SIGBUS in the program.
  bool file_backed = false;
  MemoryExtent items[kCapacity];
};

/// A file whose mappings are described as kConverted with descriptor `fd`, which the caller owns.
struct KnownFile {
  uint64_t device;  ///< dev_t
  uint64_t inode;
  int fd;
};

/// Describes [va, va + length), length >= 1. 0 or an errno, as Linux returns it for ibv_reg_mr:
/// EFAULT if a page is not mapped, not readable, or not writable although `writable` is set; EINVAL
/// if the range wraps. `on_demand` (IBV_ACCESS_ON_DEMAND): holes are allowed, and the one extent is
/// kProcessVm. Does not call malloc, takes no lock, preserves errno.
int DescribeMemory(uint64_t va, uint64_t length, bool writable, bool on_demand,
                   const KnownFile* known, MemoryExtents* extents);

/// Closes the descriptors that DescribeMemory opened, after they were sent to the daemon.
void CloseExtents(MemoryExtents* extents);

/// Opens /proc/self/mem for the daemon; the caller closes the descriptor. The descriptor is bound
/// to this address space, and forked children inherit it: do not keep it open, because a child that
/// has dropped privileges could use it. -1 with errno: EACCES if the program has changed its user
/// without exec or is not dumpable (PR_SET_DUMPABLE), ENOENT without /proc.
int OpenOwnMemory();

/// Lets process `daemon_pid` call process_vm_readv/writev on this process if Yama's ptrace_scope is
/// 1. No effect otherwise.
void AllowAccessBy(int daemon_pid);

}  // namespace roci::provider
