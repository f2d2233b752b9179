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

/// One shared mapping of a range of a file. Unmapped when the last owner lets go of it.
class MappedFile {
 public:
  /// Maps at least [offset, offset + length) of `fd`, whole pages. The descriptor may be closed
  /// afterwards. Only regular files of local file systems (tmpfs, memfd, hugetlbfs, disks) are
  /// mapped: a page fault on a network or FUSE file could hold up the dataplane for ever. Null on
  /// failure, with *error an errno (EACCES, EINVAL, ENOMEM, EOPNOTSUPP, ...); the caller then falls
  /// back to process_vm.
  static std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                         int* error);
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
  uint64_t length() const { return length_; }

 private:
  friend class FileMappings;
  MappedFile() = default;

  std::byte* base_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool writable_ = false;
  SigbusGuard::Range* guard_ = nullptr;
};

/// The mappings of one session (control thread only): a range that an earlier mapping covers is
/// shared, not mapped again.
class FileMappings {
 public:
  /// As MappedFile::Map, or an earlier mapping of the same file that covers the range, is not
  /// broken, and is writable if asked.
  std::shared_ptr<MappedFile> Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                  int* error);

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
