// Mappings, in the daemon, of files that an app has mapped too, shared between the regions that use
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

/// One shared mapping of a range of a file. Unmapped, by a thread of its own (memory/unmapper.h),
/// when the last owner lets go of it.
class MappedFile {
 public:
  /// Maps at least [offset, offset + length) of `fd`, whole pages. The descriptor may be closed
  /// afterwards. Only regular files of local file systems (tmpfs, memfd, hugetlbfs, disks) are
  /// mapped: a page fault on a network or FUSE file could hold up the dataplane for ever. Null on
  /// failure, with *error an errno (EACCES, EINVAL, ENOMEM, EOPNOTSUPP, ...); the caller then falls
  /// back to system calls.
  static std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                         int* error);
  /// Maps the same of a DMA buffer (a file of dma_buf(9)), and begins an access of the processor to
  /// it that ends with the mapping: EINVAL (none, or not so long), EOPNOTSUPP (its exporter lets
  /// nobody map it), or another errno.
  static std::shared_ptr<MappedFile> MapDmaBuffer(int fd, uint64_t offset, uint64_t length,
                                                  bool writable, int* error);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Address of file offset `offset`, which must lie in the mapped range.
  std::byte* At(uint64_t offset) const;
  bool Covers(uint64_t offset, uint64_t length) const;
  bool writable() const { return writable_; }
  /// nullptr: the file is sealed against shrinking. Otherwise true once a page of it was found
  /// missing; the mapping then must not be used any more (Segment::broken).
  const std::atomic<bool>* broken() const { return guard_ == nullptr ? nullptr : &guard_->broken; }
  bool sealed() const { return guard_ == nullptr; }
  /// Its pages belong to a file that outlives a power failure, and may be written.
  bool durable() const { return on_disk_ && writable_; }
  /// A page fault may read from a disk, so an lcore must not access the mapping directly.
  bool on_disk() const { return on_disk_; }
  /// Brings what was written to the range to where a power failure does not reach it, and waits
  /// for it. 0, EIO (from then on always: the kernel tells once of pages that it has dropped), or
  /// another errno. Any thread. Size and name of the file are the app's affair.
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
  int dma_buffer_ = -1;  // its descriptor, for the end of the access
  std::atomic<bool> sync_failed_{false};
  SigbusGuard::Range* guard_ = nullptr;
  std::unique_ptr<RetiredMapping> retired_;  // for the end
};

/// The mappings of one session (control thread only): a range that an earlier mapping covers is
/// shared, not mapped again.
class FileMappings {
 public:
  /// As MappedFile::Map, or an earlier mapping of the same file that covers the range, is not
  /// broken, and is writable if asked. Not longer than `longest`, bytes: ENOMEM.
  std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                  uint64_t longest, int* error);

 private:
  std::vector<std::weak_ptr<MappedFile>> known_;
};

/// Opens the file behind the mapping [begin, end) (exactly one line of /proc/PID/maps) of another
/// process; needs root. The permission to write is checked as `uid`/`gid`, the app's own, never as
/// the daemon's. Returns a descriptor that the caller closes, or -1 with *error an errno. The
/// caller checks afterwards that the process is still the one it means.
int OpenMappingOf(pid_t pid, uid_t uid, gid_t gid, uint64_t begin, uint64_t end, bool writable,
                  int* error);

}  // namespace roci::memory
