// The daemon's mappings of files that a program has mapped as well; regions of the same file share
// them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory/sigbus_guard.h"

namespace roci::memory {

struct RetiredMapping;
struct RetiredUse;

/// One shared mapping of a range of a file. After the last owner releases it, a separate thread
/// unmaps it (memory/unmapper.h).
class MappedFile {
 public:
  /// Maps at least [offset, offset + length) of `fd`, in whole pages. The descriptor may be closed
  /// afterwards. Only regular files of local file systems (tmpfs, memfd, hugetlbfs, disks) are
  /// mapped: a page fault on a network or FUSE file could block the dataplane for ever. Null on
  /// failure, with *error an errno (EACCES, EINVAL, ENOMEM, EOPNOTSUPP, ...); the caller then uses
  /// system calls.
  static std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                         int* error);
  /// The same for a DMA buffer (dma_buf(9)). Also starts CPU access, which ends with the mapping.
  /// EINVAL (no DMA buffer, or too short), EOPNOTSUPP (the exporter does not support mmap), or
  /// another errno.
  static std::shared_ptr<MappedFile> MapDmaBuffer(int fd, uint64_t offset, uint64_t length,
                                                  bool writable, int* error);
  ~MappedFile();
  /// The user to whose limits the mapping counts until it is unmapped. The unmapper serves users in
  /// turn.
  void ChargeTo(std::shared_ptr<RetiredUse> use);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Address of file offset `offset`, which must lie in the mapped range.
  std::byte* At(uint64_t offset) const;
  bool Covers(uint64_t offset, uint64_t length) const;
  bool writable() const { return writable_; }
  /// nullptr: the file is sealed against shrinking. Otherwise becomes true when a page was found
  /// missing; the mapping must then no longer be used (Segment::broken).
  const std::atomic<bool>* broken() const { return guard_ == nullptr ? nullptr : &guard_->broken; }
  bool sealed() const { return guard_ == nullptr; }
  /// Writable, and its file survives a power failure once synced.
  bool durable() const { return on_disk_ && writable_; }
  /// A page fault may read from a disk, so an lcore must not access the mapping directly.
  bool on_disk() const { return on_disk_; }
  /// System calls cannot access it.
  bool is_dma_buffer() const { return dma_buffer_ >= 0; }
  /// Writes the range back to disk and blocks until it is durable. 0, EIO (and at every later call,
  /// since the kernel reports dropped pages only once), or another errno. Any thread. Does not sync
  /// size and name of the file; the program does that.
  int Sync(uint64_t offset, uint64_t length);
  uint64_t length() const { return length_; }

 private:
  friend class FileMappings;
  MappedFile();
  static std::shared_ptr<MappedFile> MapPages(int fd, uint64_t begin, uint64_t end, bool writable,
                                              int* error);
  bool Guard(size_t page_size, int* error);

  std::byte* base_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool writable_ = false;
  bool on_disk_ = false;
  int dma_buffer_ = -1;  // descriptor for the end of CPU access; -1: no DMA buffer
  std::atomic<bool> sync_failed_{false};
  SigbusGuard::Range* guard_ = nullptr;
  std::unique_ptr<RetiredMapping> retired_;  // for the unmapper, allocated in advance
};

/// The mappings of one session (control thread only). A range that an existing mapping covers
/// shares it.
class FileMappings {
 public:
  /// As MappedFile::Map, or an existing mapping of the same file that covers the range, is not
  /// broken, and is writable if `writable`. ENOMEM: the mapping would be longer than `longest`
  /// bytes.
  std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                  uint64_t longest, int* error);

 private:
  std::vector<std::weak_ptr<MappedFile>> known_;
};

/// Opens the file of the mapping [begin, end) (exactly one line of /proc/PID/maps) of another
/// process; needs root. Write permission is checked for `uid`/`gid`, those of the program, never
/// for the daemon's. Returns a descriptor that the caller closes, or -1 with *error an errno. The
/// caller checks afterwards that the process is still the same program.
int OpenMappingOf(pid_t pid, uid_t uid, gid_t gid, uint64_t begin, uint64_t end, bool writable,
                  int* error);

}  // namespace roci::memory
