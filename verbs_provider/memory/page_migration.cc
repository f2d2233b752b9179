// Migrates pages without losing a write.
//
// To the file: userfaultfd watches the range for missing pages. mremap(DONTUNMAP) moves the pages
// away atomically; from then on every access by a thread, the kernel or another process blocks. The
// pages are copied into the file, and the file is mapped over the range. Then the blocked threads
// are woken and see the file's pages.
//
// To private memory: userfaultfd write-protects the range, so that writers block and readers do
// not. The pages are copied to new private memory, which mremap moves over the range atomically.
//
// Limits: a device or io_uring that has pinned pages keeps the old ones, so I/O in flight into the
// range is lost. A thread that waits on a process-shared futex in the range is not woken any more.
// Advice given with madvise and memory policies are lost. MADV_DONTNEED on converted memory keeps
// the file's bytes, where private memory would read as zeros.
#include "verbs_provider/memory/page_migration.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "verbs_provider/memory/page.h"
#include "verbs_provider/memory/raw_syscall.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace roci::provider {
namespace {

// Bytes that are migrated at once: threads that access the range block for about 2 ms.
constexpr uint64_t kPieceLength = 2U << 20;
constexpr uint64_t kPagemapPresent = uint64_t{1} << 63;
constexpr uint64_t kPagemapSwapped = uint64_t{1} << 62;

int ErrnoOf(long result) { return RawFailed(result) ? static_cast<int>(-result) : 0; }

// One piece that is being migrated. Lives on the stack, as all data does that a migration uses.
struct Piece {
  uint64_t begin;
  uint64_t length;
  uint64_t offset;  // in the file
  int protection;
  int file;
  int pagemap;  // /proc/self/pagemap; -1: every page counts as present
  int userfaultfd;
  uint64_t* data_end;  // see CopyPagesFromFile
  uint64_t fresh;      // private memory to copy to; 0: none yet
};

// Blocks all signals: a handler that accesses the range would wait for the thread it interrupted.
class BlockSignals {
 public:
  BlockSignals() {
    uint64_t all = ~uint64_t{0};
    RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&all),
               reinterpret_cast<long>(&saved_), sizeof saved_);
  }
  ~BlockSignals() {
    RawSyscall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&saved_), 0, sizeof saved_);
  }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  uint64_t saved_ = 0;
};

class RawFd {
 public:
  explicit RawFd(long fd) : fd_(static_cast<int>(fd)) {}
  ~RawFd() {
    if (fd_ >= 0) RawSyscall(SYS_close, fd_);
  }
  RawFd(const RawFd&) = delete;
  RawFd& operator=(const RawFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Not UFFD_USER_MODE_ONLY: system calls that access the range must block too.
long NewUserfaultfd(int device) {
  const long flags = O_CLOEXEC | O_NONBLOCK;
  long fd = RawSyscall(SYS_userfaultfd, flags);
  if (RawFailed(fd) && device >= 0) {
    fd = RawSyscall(SYS_ioctl, device, static_cast<long>(USERFAULTFD_IOC_NEW), flags);
  }
  if (RawFailed(fd)) return fd;
  uffdio_api api{UFFD_API, 0, 0};
  const long agreed =
      RawSyscall(SYS_ioctl, fd, static_cast<long>(UFFDIO_API), reinterpret_cast<long>(&api));
  if (!RawFailed(agreed)) return fd;
  RawSyscall(SYS_close, fd);
  return agreed;
}

long Register(const Piece& piece, uint64_t mode) {
  uffdio_register request{{piece.begin, piece.length}, mode, 0};
  return RawSyscall(SYS_ioctl, piece.userfaultfd, static_cast<long>(UFFDIO_REGISTER),
                    reinterpret_cast<long>(&request));
}

void Wake(const Piece& piece) {
  uffdio_range range{piece.begin, piece.length};
  RawSyscall(SYS_ioctl, piece.userfaultfd, static_cast<long>(UFFDIO_WAKE),
             reinterpret_cast<long>(&range));
}

long WriteProtect(const Piece& piece, bool on) {
  uffdio_writeprotect request{{piece.begin, piece.length}, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0U};
  return RawSyscall(SYS_ioctl, piece.userfaultfd, static_cast<long>(UFFDIO_WRITEPROTECT),
                    reinterpret_cast<long>(&request));
}

long PunchHole(int file, uint64_t begin, uint64_t length) {
  return RawSyscall(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<long>(begin), static_cast<long>(length));
}

// Calls SYS_pread64 or SYS_pwrite64 (`number`) until all of [address, address + length) is
// transferred from or to the file at `offset`. 0 or a negated errno.
long TransferAll(long number, int file, uint64_t address, uint64_t length, uint64_t offset) {
  while (length > 0) {
    const long moved = RawSyscall(number, file, static_cast<long>(address),
                                  static_cast<long>(length), static_cast<long>(offset));
    if (moved == -EINTR) continue;
    if (moved <= 0) return moved == 0 ? -EIO : moved;
    address += static_cast<uint64_t>(moved);
    offset += static_cast<uint64_t>(moved);
    length -= static_cast<uint64_t>(moved);
  }
  return 0;
}

long WriteAll(int file, uint64_t address, uint64_t length, uint64_t offset) {
  return TransferAll(SYS_pwrite64, file, address, length, offset);
}

long ReadAll(int file, uint64_t address, uint64_t length, uint64_t offset) {
  return TransferAll(SYS_pread64, file, address, length, offset);
}

// Copies the present pages at `away`, one write per run of them. Absent pages read as zeros and
// stay holes of the file.
long CopyPagesToFile(const Piece& piece, uint64_t away) {
  constexpr uint64_t kBatch = 256;
  uint64_t entries[kBatch];
  const uint64_t pages = piece.length / kPageSize;
  for (uint64_t first = 0; first < pages; first += kBatch) {
    const uint64_t count = pages - first < kBatch ? pages - first : kBatch;
    const long want = static_cast<long>(count * sizeof entries[0]);
    const bool known =
        piece.pagemap >= 0 &&
        RawSyscall(SYS_pread64, piece.pagemap, reinterpret_cast<long>(entries), want,
                   static_cast<long>((away / kPageSize + first) * sizeof entries[0])) == want;
    for (uint64_t i = 0; i < count;) {
      const auto present = [&](uint64_t at) {
        return !known || (entries[at] & (kPagemapPresent | kPagemapSwapped)) != 0;
      };
      uint64_t run = 0;
      while (i + run < count && present(i + run)) ++run;
      if (run == 0) {
        ++i;
        continue;
      }
      const uint64_t offset = (first + i) * kPageSize;
      const long error =
          WriteAll(piece.file, away + offset, run * kPageSize, piece.offset + offset);
      if (error != 0) return error;
      i += run;
    }
  }
  return 0;
}

// Copies the file's data of the piece to `to`; holes stay untouched zero pages. SEEK_HOLE scans
// page by page, possibly far past the piece: `*data_end` keeps its result for the next piece.
long CopyPagesFromFile(const Piece& piece, uint64_t to) {
  const uint64_t end = piece.offset + piece.length;
  for (uint64_t at = piece.offset; at < end;) {
    uint64_t from = at;
    if (at >= *piece.data_end) {
      const long data = RawSyscall(SYS_lseek, piece.file, static_cast<long>(at), SEEK_DATA);
      if (data == -ENXIO || (!RawFailed(data) && static_cast<uint64_t>(data) >= end)) return 0;
      if (RawFailed(data)) return data;
      const long hole = RawSyscall(SYS_lseek, piece.file, data, SEEK_HOLE);
      if (RawFailed(hole)) return hole;
      from = static_cast<uint64_t>(data);
      *piece.data_end = static_cast<uint64_t>(hole);
    }
    const uint64_t until = *piece.data_end < end ? *piece.data_end : end;
    const long error = ReadAll(piece.file, to + (from - piece.offset), until - from, from);
    if (error != 0) return error;
    at = until;
  }
  return 0;
}

// Every other access to the pages blocks from the first mremap until Wake().
long MovePieceToFile(const Piece& piece) {
  const auto begin = static_cast<long>(piece.begin);
  const auto length = static_cast<long>(piece.length);
  const long away =
      RawSyscall(SYS_mremap, begin, length, length, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
  if (RawFailed(away)) return away;
  long error = CopyPagesToFile(piece, static_cast<uint64_t>(away));
  if (error == 0) {
    const long mapped =
        RawSyscall(SYS_mmap, begin, length, piece.protection, MAP_SHARED | MAP_FIXED, piece.file,
                   static_cast<long>(piece.offset));
    error = RawFailed(mapped) ? mapped : 0;
  }
  if (error == 0) {
    Wake(piece);
    RawSyscall(SYS_munmap, away, length);
    return 0;
  }
  // The pages are unchanged: move them back.
  RawSyscall(SYS_mremap, away, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, begin);
  Wake(piece);
  PunchHole(piece.file, piece.offset, piece.length);
  return error;
}

long MapPrivate(uint64_t length) {
  return RawSyscall(SYS_mmap, 0, static_cast<long>(length), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

long MovePieceToPrivate(const Piece& piece) {
  const auto length = static_cast<long>(piece.length);
  const long fresh = piece.fresh != 0 ? static_cast<long>(piece.fresh) : MapPrivate(piece.length);
  if (RawFailed(fresh)) return fresh;
  long error = WriteProtect(piece, true);
  if (error == 0) error = CopyPagesFromFile(piece, static_cast<uint64_t>(fresh));
  if (error == 0 && piece.protection != (PROT_READ | PROT_WRITE)) {
    error = RawSyscall(SYS_mprotect, fresh, length, piece.protection);
  }
  if (error == 0) {
    const long placed = RawSyscall(SYS_mremap, fresh, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                                   static_cast<long>(piece.begin));
    error = RawFailed(placed) ? placed : 0;
  }
  if (error != 0) {
    RawSyscall(SYS_munmap, fresh, length);
    WriteProtect(piece, false);
    return error;
  }
  Wake(piece);
  PunchHole(piece.file, piece.offset, piece.length);
  return 0;
}

// Private memory for all pieces of a range, in one mapping, so that the kernel merges the pieces
// into one mapping again: mremap cannot move a range of several mappings later. The destructor
// unmaps the part that no piece has taken.
class FreshMemory {
 public:
  explicit FreshMemory(uint64_t length) : length_(length) {
    const long mapped = length > kPieceLength ? MapPrivate(length) : -ENOMEM;
    if (RawFailed(mapped)) return;  // each piece maps its own
    begin_ = static_cast<uint64_t>(mapped);
    // The kernel merges only mappings that share an anon_vma, which the first page creates.
    *reinterpret_cast<volatile char*>(begin_) = 0;
  }
  ~FreshMemory() {
    if (begin_ != 0 && taken_ < length_) {
      RawSyscall(SYS_munmap, static_cast<long>(begin_ + taken_),
                 static_cast<long>(length_ - taken_));
    }
  }
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  uint64_t Next() const { return begin_ != 0 ? begin_ + taken_ : 0; }
  void Took(uint64_t length) { taken_ += length; }

 private:
  uint64_t begin_ = 0;
  uint64_t length_;
  uint64_t taken_ = 0;
};

using MovePiece = long (*)(const Piece&);

int MovePieces(uint64_t begin, uint64_t end, uint64_t offset, int protection,
               const MigrationFiles& files, int pagemap, uint64_t mode, MovePiece move,
               FreshMemory* fresh, uint64_t* done) {
  *done = begin;
  uint64_t data_end = 0;
  while (*done < end) {
    const RawFd userfaultfd(NewUserfaultfd(files.userfaultfd_device));
    if (userfaultfd.get() < 0) return -userfaultfd.get();
    const uint64_t length = end - *done < kPieceLength ? end - *done : kPieceLength;
    const Piece piece{*done,
                      length,
                      offset + (*done - begin),
                      protection,
                      files.file,
                      pagemap,
                      userfaultfd.get(),
                      &data_end,
                      fresh != nullptr ? fresh->Next() : 0};
    const long registered = Register(piece, mode);
    if (RawFailed(registered)) return ErrnoOf(registered);
    const BlockSignals block;
    const long moved = move(piece);
    // The move has used or unmapped the memory, whether it succeeded or not.
    if (fresh != nullptr) fresh->Took(length);
    if (RawFailed(moved)) return ErrnoOf(moved);
    *done += length;
  }
  return 0;
}

}  // namespace

int MigrateToFile(uint64_t begin, uint64_t end, int protection, const MigrationFiles& files,
                  uint64_t* done) {
  const RawFd pagemap(RawSyscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/pagemap"),
                                 O_RDONLY | O_CLOEXEC));
  // Frees bytes of earlier memory at these addresses; absent pages, which are not copied, must read
  // as zeros.
  const long cleared = PunchHole(files.file, begin, end - begin);
  if (RawFailed(cleared)) {
    *done = begin;
    return ErrnoOf(cleared);
  }
  return MovePieces(begin, end, begin, protection, files, pagemap.get(),
                    UFFDIO_REGISTER_MODE_MISSING, MovePieceToFile, nullptr, done);
}

int MigrateToPrivate(uint64_t begin, uint64_t end, uint64_t offset, int protection,
                     const MigrationFiles& files, uint64_t* done) {
  FreshMemory fresh(end - begin);
  return MovePieces(begin, end, offset, protection, files, -1, UFFDIO_REGISTER_MODE_WP,
                    MovePieceToPrivate, &fresh, done);
}

void DropFilePages(uint64_t begin, uint64_t end, const MigrationFiles& files) {
  PunchHole(files.file, begin, end - begin);
}

}  // namespace roci::provider
