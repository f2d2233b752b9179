// Maps files of programs in the daemon: page rounding, sharing, and map_files.
#include "memory/mapped_file.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "memory/dma_buffer.h"
#include "memory/local_file.h"
#include "memory/unmapper.h"

namespace roci::memory {
namespace {

bool CanShrink(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals < 0 || (seals & F_SEAL_SHRINK) == 0;
}

// A sealed file cannot shrink, but pages beyond its end never exist.
bool EndsBefore(const struct stat& file, uint64_t end) {
  return static_cast<uint64_t>(file.st_size) < end;
}

// Sets the file-system identity of this thread; restores it at the end of the scope.
class ScopedFsIdentity {
 public:
  ScopedFsIdentity(uid_t uid, gid_t gid) : uid_(setfsuid(uid)), gid_(setfsgid(gid)) {
    ok_ = static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid &&
          static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid;
  }
  ~ScopedFsIdentity() {
    setfsuid(static_cast<uid_t>(uid_));
    setfsgid(static_cast<gid_t>(gid_));
  }
  ScopedFsIdentity(const ScopedFsIdentity&) = delete;
  ScopedFsIdentity& operator=(const ScopedFsIdentity&) = delete;
  bool ok() const { return ok_; }

 private:
  int uid_;
  int gid_;
  bool ok_;
};

// Drops the supplementary groups of this thread; restores them at the end of the scope. Uses the
// raw system call, since glibc's function changes all threads.
class ScopedNoGroups {
 public:
  ScopedNoGroups() {
    count_ = getgroups(kMaxGroups, groups_);
    ok_ = count_ == 0 || (count_ > 0 && syscall(SYS_setgroups, 0, nullptr) == 0);
  }
  ~ScopedNoGroups() {
    if (ok_ && count_ > 0) syscall(SYS_setgroups, count_, groups_);
  }
  ScopedNoGroups(const ScopedNoGroups&) = delete;
  ScopedNoGroups& operator=(const ScopedNoGroups&) = delete;
  bool ok() const { return ok_; }

 private:
  static constexpr int kMaxGroups = 256;
  gid_t groups_[kMaxGroups];
  int count_;
  bool ok_;
};

}  // namespace

std::shared_ptr<MappedFile> MappedFile::Map(int fd, uint64_t offset, uint64_t length, bool writable,
                                            int* error) {
  const std::optional<LocalFile> local = InspectLocalFile(fd);
  struct stat file;
  if (!local || fstat(fd, &file) != 0) {
    *error = fcntl(fd, F_GETFD) < 0 ? errno : EOPNOTSUPP;
    return nullptr;
  }
  const size_t page_size = local->page_size;
  uint64_t end = 0;
  if (length == 0 || __builtin_add_overflow(offset, length, &end) ||
      __builtin_add_overflow(end, page_size - 1, &end) || end > INT64_MAX) {
    *error = EINVAL;
    return nullptr;
  }
  end &= ~(page_size - 1);
  const uint64_t begin = offset & ~(page_size - 1);
  std::shared_ptr<MappedFile> mapped = MapPages(fd, begin, end, writable, error);
  if (mapped == nullptr) return nullptr;
  mapped->device_ = file.st_dev;
  mapped->inode_ = file.st_ino;
  mapped->on_disk_ = local->durable;
  // hugetlb pages of a sealed file can be missing: the pool may be empty at the first access.
  const bool huge = page_size != static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if ((huge || CanShrink(fd) || EndsBefore(file, end)) && !mapped->Guard(page_size, error)) {
    return nullptr;
  }
  return mapped;
}

std::shared_ptr<MappedFile> MappedFile::MapPages(int fd, uint64_t begin, uint64_t end,
                                                 bool writable, int* error) {
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->retired_ = std::make_unique<RetiredMapping>();
  void* base = mmap(nullptr, end - begin, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                    fd, static_cast<off_t>(begin));
  if (base == MAP_FAILED) {
    *error = errno;
    return nullptr;
  }
  madvise(base, end - begin, MADV_DONTFORK);
  madvise(base, end - begin, MADV_DONTDUMP);
  mapped->base_ = static_cast<std::byte*>(base);
  mapped->offset_ = begin;
  mapped->length_ = end - begin;
  mapped->writable_ = writable;
  return mapped;
}

bool MappedFile::Guard(size_t page_size, int* error) {
  guard_ = SigbusGuard::Add(base_, length_, page_size);
  if (guard_ == nullptr) *error = ENOSPC;
  return guard_ != nullptr;
}

MappedFile::MappedFile() = default;

MappedFile::~MappedFile() {
  // In this order the guard never covers addresses that another mapping may already use.
  if (guard_ != nullptr) SigbusGuard::Remove(guard_);
  if (base_ == nullptr) return;
  retired_->base = base_;
  retired_->length = length_;
  retired_->dma_buffer = dma_buffer_;
  Unmapper::Retire(retired_.release());
}

void MappedFile::ChargeTo(std::shared_ptr<RetiredUse> use) { retired_->use = std::move(use); }

std::byte* MappedFile::At(uint64_t offset) const {
  assert(Covers(offset, 1));
  return base_ + (offset - offset_);
}

bool MappedFile::Covers(uint64_t offset, uint64_t length) const {
  return offset >= offset_ && offset - offset_ <= length_ && length <= length_ - (offset - offset_);
}

// msync instead of fdatasync: it needs no open descriptor and writes only this range.
int MappedFile::Sync(uint64_t offset, uint64_t length) {
  assert(Covers(offset, length));
  const auto page_size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset & ~(page_size - 1);
  const int error = msync(At(begin), offset + length - begin, MS_SYNC) == 0 ? 0 : errno;
  if (error != 0) sync_failed_.store(true, std::memory_order_relaxed);
  // Bytes written to a truncated page are lost.
  const bool lost = sync_failed_.load(std::memory_order_relaxed) ||
                    (broken() != nullptr && broken()->load(std::memory_order_relaxed));
  return error != 0 ? error : lost ? EIO : 0;
}

std::shared_ptr<MappedFile> FileMappings::Map(int fd, uint64_t offset, uint64_t length,
                                              bool writable, uint64_t longest, int* error) {
  std::erase_if(known_, [](const auto& weak) { return weak.expired(); });
  struct stat file;
  if (!InspectLocalFile(fd) || fstat(fd, &file) != 0) {
    *error = EOPNOTSUPP;
    return nullptr;
  }
  for (const auto& weak : known_) {
    auto mapped = weak.lock();
    if (mapped != nullptr && mapped->device_ == file.st_dev && mapped->inode_ == file.st_ino &&
        mapped->Covers(offset, length) && mapped->writable_ == writable &&
        mapped->length() <= longest &&
        (mapped->sealed() || !mapped->broken()->load(std::memory_order_relaxed))) {
      *error = 0;
      return mapped;
    }
  }
  if (length > longest) {
    *error = ENOMEM;
    return nullptr;
  }
  auto mapped = MappedFile::Map(fd, offset, length, writable, error);
  if (mapped == nullptr) return nullptr;
  if (mapped->length() > longest) {  // in whole pages, which may be huge
    *error = ENOMEM;
    return nullptr;
  }
  known_.push_back(mapped);
  return mapped;
}

int OpenMappingOf(pid_t pid, uid_t uid, gid_t gid, uint64_t begin, uint64_t end, bool writable,
                  int* error) {
  char path[96];
  std::snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", static_cast<int>(pid),
                static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end));
  // Only root may follow map_files links. The file is opened with the program's rights, since a
  // program could otherwise make the daemon write a file that is read-only for the program.
  const ScopedNoGroups groups;
  const ScopedFsIdentity identity(uid, gid);
  if (!groups.ok() || !identity.ok()) {
    *error = EPERM;
    return -1;
  }
  // Opening a FUSE file calls its server, except with O_PATH.
  const int found = open(path, O_PATH | O_CLOEXEC);
  *error = found < 0 ? errno : InspectLocalFile(found) ? 0 : EOPNOTSUPP;
  int fd = -1;
  if (*error == 0) {
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", found);
    fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) *error = errno;
  }
  if (found >= 0) close(found);
  return fd;
}

}  // namespace roci::memory
