// Walks the program's mappings in a range and describes each by the fastest possible kind of
// extent.
#include "verbs_provider/memory/app_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "verbs_provider/base/keep_errno.h"
#include "verbs_provider/memory/maps_reader.h"

namespace roci::provider {
namespace {

// Most descriptors of the program that a search for a file checks.
constexpr int kMaxDescriptorsSearched = 65536;

bool IsFile(int fd, const MapsLine& line) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_dev == line.device && file.st_ino == line.inode &&
         S_ISREG(file.st_mode);
}

bool OpenFor(int fd, bool writing) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return false;
  const int mode = flags & O_ACCMODE;
  return writing ? mode == O_RDWR : mode == O_RDWR || mode == O_RDONLY;
}

// A duplicate of descriptor `fd` if it is the file of `line`, else -1. The duplicate is checked
// again, because other threads may close and open descriptors at any time.
int DuplicateIfFile(int fd, const MapsLine& line) {
  if (!IsFile(fd, line) || !OpenFor(fd, line.writable)) return -1;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return -1;
  if (IsFile(copy, line) && OpenFor(copy, line.writable)) return copy;
  close(copy);
  return -1;
}

// A duplicate of a descriptor of the program that is the file of `line`, else -1. Lists
// /proc/self/fd with getdents64, because opendir calls malloc.
int FindDescriptor(const MapsLine& line) {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -1;
  alignas(dirent64) char names[2048];
  int found = -1;
  int searched = 0;
  long got = 0;
  while (found < 0 && searched < kMaxDescriptorsSearched &&
         (got = syscall(SYS_getdents64, folder, names, sizeof names)) > 0) {
    for (long at = 0; at < got && found < 0; ++searched) {
      const auto* entry = reinterpret_cast<const dirent64*>(names + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      const int fd = std::atoi(entry->d_name);
      if (fd != folder) found = DuplicateIfFile(fd, line);
    }
  }
  close(folder);
  return found;
}

int OpenPath(const MapsLine& line) {
  // O_NONBLOCK and O_NOCTTY: the path may name a FIFO or terminal by now.
  if (line.path[0] != '/') return -1;
  const int fd =
      open(line.path, (line.writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 || IsFile(fd, line)) return fd;
  close(fd);
  return -1;
}

MemoryExtent PlainExtent(uint64_t va, uint64_t length) {
  MemoryExtent extent{};
  extent.va = va;
  extent.length = length;
  extent.fd = -1;
  extent.kind = ExtentKind::kProcessVm;
  return extent;
}

void CloseExtent(MemoryExtent* extent) {
  if (extent->close_fd) close(extent->fd);
  extent->close_fd = false;
  extent->fd = -1;
}

// Builds the list line by line.
class Builder {
 public:
  Builder(const KnownFile* known, MemoryExtents* extents) : known_(known), extents_(extents) {}

  // The part [va, va + length) of a mapping.
  void Add(const MapsLine& line, uint64_t va, uint64_t length) {
    const bool file = line.shared && line.inode != 0;
    if (line.inode != 0 && !IsKnown(line)) extents_->file_backed = true;
    if (Extend(line, file, va, length)) return;
    if (extents_->count == MemoryExtents::kCapacity) {
      AbsorbIntoLast(length);
      return;
    }
    MemoryExtent extent = PlainExtent(va, length);
    if (file) DescribeFile(line, &extent);
    extents_->items[extents_->count++] = extent;
    device_ = line.device;
    inode_ = line.inode;
  }

 private:
  bool IsKnown(const MapsLine& line) const {
    return known_ != nullptr && known_->device == line.device && known_->inode == line.inode;
  }

  MemoryExtent* Last() {
    return extents_->count == 0 ? nullptr : &extents_->items[extents_->count - 1];
  }

  // Extends the last extent by this part. False if the part is of another kind or does not continue
  // the last extent's file.
  bool Extend(const MapsLine& line, bool file, uint64_t va, uint64_t length) {
    MemoryExtent* last = Last();
    if (last == nullptr) return false;
    const bool last_plain = last->kind == ExtentKind::kProcessVm;
    const bool same_file = file && last->fd >= 0 && device_ == line.device &&
                           inode_ == line.inode && (last->writable || !line.writable) &&
                           last->file_offset + last->length == line.offset + (va - line.begin);
    if (!(last_plain && !file) && !same_file) return false;
    last->length += length;
    last->writable = last->writable && line.writable;
    return true;
  }

  void AbsorbIntoLast(uint64_t length) {
    MemoryExtent* last = Last();
    CloseExtent(last);
    *last = PlainExtent(last->va, last->length + length);
  }

  void DescribeFile(const MapsLine& line, MemoryExtent* extent) {
    extent->file_offset = line.offset + (extent->va - line.begin);
    extent->writable = line.writable;
    if (IsKnown(line)) {
      extent->kind = ExtentKind::kConverted;
      extent->fd = known_->fd;
      return;
    }
    if (ReuseDescriptor(line, extent)) return;
    int fd = FindDescriptor(line);
    if (fd < 0) fd = OpenPath(line);
    if (fd >= 0) {
      extent->kind = ExtentKind::kFile;
      extent->fd = fd;
      extent->close_fd = true;
      return;
    }
    extent->kind = ExtentKind::kMapFiles;
    extent->vma_begin = line.begin;
    extent->vma_end = line.end;
  }

  // Uses the last extent's descriptor if it is the same file, at an offset that does not continue
  // that extent.
  bool ReuseDescriptor(const MapsLine& line, MemoryExtent* extent) {
    const MemoryExtent* last = Last();
    if (last == nullptr || last->kind != ExtentKind::kFile || device_ != line.device ||
        inode_ != line.inode || !OpenFor(last->fd, line.writable)) {
      return false;
    }
    extent->kind = ExtentKind::kFile;
    extent->fd = last->fd;
    return true;
  }

  const KnownFile* known_;
  MemoryExtents* extents_;
  uint64_t device_ = 0;  // of the last extent
  uint64_t inode_ = 0;
};

int WalkRange(uint64_t va, uint64_t end, bool writable, Builder* builder) {
  MapsReader reader(va);
  if (!reader.ok()) return errno == 0 ? EIO : errno;
  MapsLine line;
  uint64_t next = va;
  while (next < end && reader.Next(&line)) {
    if (line.end <= next) continue;
    if (line.begin > next || !line.readable || (writable && !line.writable)) return EFAULT;
    const uint64_t until = std::min(line.end, end);
    builder->Add(line, next, until - next);
    next = until;
  }
  return next < end ? EFAULT : 0;
}

// Whether the first and the last byte are readable; bytes past the end of a truncated file are not.
// The system call reports a fault as an error instead of a signal. Blocks for a page that the
// program's userfaultfd handler has yet to provide, as an adapter's driver does.
bool CanBeRead(uint64_t va, uint64_t end) {
  char bytes[2];
  iovec local[] = {{bytes, 1}, {bytes + 1, 1}};
  iovec remote[] = {{reinterpret_cast<void*>(va), 1}, {reinterpret_cast<void*>(end - 1), 1}};
  const ssize_t got = process_vm_readv(getpid(), local, 2, remote, 2, 0);
  return got == 2 || (got < 0 && errno != EFAULT);
}

}  // namespace

int DescribeMemory(uint64_t va, uint64_t length, bool writable, bool on_demand,
                   const KnownFile* known, MemoryExtents* extents) {
  const KeepErrno keep;
  extents->count = 0;
  extents->file_backed = false;
  if (on_demand) {
    extents->items[extents->count++] = PlainExtent(va, length);
    return 0;
  }
  uint64_t end = 0;
  if (length == 0 || __builtin_add_overflow(va, length, &end)) return EINVAL;
  Builder builder(known, extents);
  int error = WalkRange(va, end, writable, &builder);
  if (error == 0 && !CanBeRead(va, end)) error = EFAULT;
  if (error != 0) CloseExtents(extents);
  return error;
}

void CloseExtents(MemoryExtents* extents) {
  const KeepErrno keep;
  for (uint32_t i = 0; i < extents->count; ++i) CloseExtent(&extents->items[i]);
}

int OpenOwnMemory() { return open("/proc/self/mem", O_RDWR | O_CLOEXEC); }

void AllowAccessBy(int daemon_pid) {
  const KeepErrno keep;
  prctl(PR_SET_PTRACER, daemon_pid, 0, 0, 0);
}

}  // namespace roci::provider
