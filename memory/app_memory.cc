// System calls on a program's memory, and the checks that it is still the program that was opened.
#include "memory/app_memory.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

#include "memory/process_memory.h"

namespace roci::memory {
namespace {

// Never mapped (below mmap_min_addr), so a read costs no page lookup.
constexpr off_t kUnmappedAddress = 0;

bool ProcessExited(int pidfd) {
  pollfd poll_fd{pidfd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) != 0;
}

// An open /proc/PID/mem belongs to an address space, not to a process number: reading an unmapped
// address gives EIO while the address space is in use, and end of file once its last process exited
// or called exec.
bool AddressSpaceGone(int mem_fd) {
  char byte;
  return pread(mem_fd, &byte, 1, kUnmappedAddress) == 0;
}

// Whether the file system of `fd`, a foreign descriptor, is procfs. A FUSE server may never answer
// fstatfs, so it is called only after answers of the kernel itself exclude FUSE: FUSE with an
// anonymous device number has blocks of a page, procfs has blocks of 1 KiB.
bool IsOfProcfs(int fd) {
  constexpr int kBlockOfProcfs = 1024;
  struct statx file;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE, &file) != 0 ||
      file.stx_dev_major != 0 || file.stx_mode != (S_IFREG | S_IRUSR | S_IWUSR)) {
    return false;
  }
  int block = 0;
  struct statfs system;
  return ioctl(fd, FIGETBSZ, &block) == 0 && block == kBlockOfProcfs && fstatfs(fd, &system) == 0 &&
         system.f_type == PROC_SUPER_MAGIC;
}

bool IsOpenForBoth(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & (O_ACCMODE | O_PATH)) == O_RDWR;
}

// 0 if the foreign descriptor `fd` is an open /proc/PID/mem, for reading and writing, whose address
// space is in use. EBADF, ESRCH. Path names prove nothing: files can be mounted over others.
int CheckMemoryFile(int fd) {
  if (!IsOpenForBoth(fd) || !IsOfProcfs(fd)) return EBADF;
  // Beyond every address space. Other files of procfs give end of file or other errors there.
  constexpr off_t kNoAddress = INT64_MAX - 4095;
  char byte;
  const ssize_t got = pread(fd, &byte, 1, kNoAddress);
  if (got == 0) return ESRCH;
  return got < 0 && errno == EIO ? 0 : EBADF;
}

int OpenOf(pid_t pid, const char* file, int flags) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/%s", static_cast<int>(pid), file);
  return open(path, flags | O_CLOEXEC);
}

// Address of the 16 random bytes that the kernel generates at exec (AT_RANDOM, getauxval(3)). They
// differ for each exec, and other processes cannot predict them. 0 if the process has none.
uint64_t AtRandomAddress(pid_t pid) {
  const int fd = OpenOf(pid, "auxv", O_RDONLY);
  if (fd < 0) return 0;
  std::array<Elf64_auxv_t, 64> entries{};
  const ssize_t size = read(fd, entries.data(), sizeof(entries));
  close(fd);
  const size_t count = static_cast<size_t>(std::max<ssize_t>(size, 0)) / sizeof(Elf64_auxv_t);
  const std::span<const Elf64_auxv_t> filled = std::span(entries).first(count);
  const auto found = std::find_if(filled.begin(), filled.end(), [](const Elf64_auxv_t& entry) {
    return entry.a_type == AT_RANDOM;
  });
  return found == filled.end() ? 0 : found->a_un.a_val;
}

using ExecRandom = std::array<std::byte, 16>;

bool ReadExecRandom(int mem_fd, uint64_t address, ExecRandom& bytes) {
  return pread(mem_fd, bytes.data(), bytes.size(), static_cast<off_t>(address)) ==
         static_cast<ssize_t>(bytes.size());
}

// Whether the process now uses the address space of `mem_fd`. `address`: its AT_RANDOM.
bool HasAddressSpace(pid_t pid, int mem_fd, uint64_t address) {
  const int now_fd = OpenOf(pid, "mem", O_RDONLY);
  if (now_fd < 0) return false;
  ExecRandom then, now;
  const bool is_same = ReadExecRandom(mem_fd, address, then) &&
                       ReadExecRandom(now_fd, AtRandomAddress(pid), now) && then == now;
  close(now_fd);
  return is_same;
}

// Whether HasAddressSpace() may read the process. Missing permission is not an error: see
// has_process().
bool CanCompare(pid_t pid) {
  const int fd = pid > 0 ? OpenOf(pid, "mem", O_RDONLY) : -1;
  if (fd < 0) return pid > 0 && errno != EACCES && errno != EPERM;
  close(fd);
  return true;
}

// Whether the process's effective user ID is 0.
bool RunsAsRoot(pid_t pid) {
  const int fd = OpenOf(pid, "status", O_RDONLY);
  if (fd < 0) return false;
  char text[4096];
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (size <= 0) return false;
  text[size] = 0;
  const char* line = std::strstr(text, "\nUid:");
  unsigned effective = 1;
  return line != nullptr && std::sscanf(line, " Uid: %*u %u", &effective) == 1 && effective == 0;
}

// Copies between all of `local` and the remote address `va`. Returns the bytes copied.
size_t MoveRun(int mem_fd, Direction direction, std::span<const iovec> local, uint64_t va) {
  const auto count = static_cast<int>(local.size());
  const auto at = static_cast<off_t>(va);
  const ssize_t moved = direction == Direction::kToApp ? pwritev(mem_fd, local.data(), count, at)
                                                       : preadv(mem_fd, local.data(), count, at);
  return moved < 0 ? 0 : static_cast<size_t>(moved);
}

// Splits a list of ranges into pieces, front to back.
class RunCursor {
 public:
  explicit RunCursor(std::span<const iovec> runs) : runs_(runs) {}

  // Fills `pieces` with at most `size` bytes in total and stores that total in *taken.
  std::span<const iovec> Take(size_t size, std::span<iovec> pieces, size_t* taken) {
    size_t count = 0;
    *taken = 0;
    while (count < pieces.size() && *taken < size) {
      const iovec& run = runs_.front();
      const size_t part = std::min(run.iov_len - used_, size - *taken);
      pieces[count++] = {static_cast<char*>(run.iov_base) + used_, part};
      *taken += part;
      used_ += part;
      if (used_ == run.iov_len) {
        runs_ = runs_.subspan(1);
        used_ = 0;
      }
    }
    return pieces.first(count);
  }

 private:
  std::span<const iovec> runs_;
  size_t used_ = 0;  // bytes of the first range
};

}  // namespace

bool MayBeMemoryOfProcess(int fd) { return IsOpenForBoth(fd) && IsOfProcfs(fd); }

// Open() and Adopt() set the descriptors after the last call that may throw.
AppMemory::AppMemory(pid_t pid, int mem_fd, Reach reach)
    : pid_(pid),
      atomic_locks_(LocksOf(IdentityOf(pid, mem_fd))),
      reach_(pid > 0 && ProcessVmWorks() ? reach : Reach::kAddressSpace),
      random_va_(pid <= 0 ? 0 : AtRandomAddress(pid)) {}

std::unique_ptr<AppMemory> AppMemory::Open(pid_t pid, int pidfd, Reach reach, int* error) {
  *error = 0;
  std::unique_ptr<AppMemory> app(new AppMemory(pid, -1, reach));
  if (!app->KeepPidfd(pidfd, error)) return nullptr;
  app->mem_fd_ = OpenOf(pid, "mem", O_RDWR);
  if (app->mem_fd_ < 0) {
    *error = errno == ENOENT ? ESRCH : errno == EACCES ? EPERM : errno;
    return nullptr;
  }
  // This proves that the number meant this process when its memory was opened.
  if (!app->Alive()) {
    *error = ESRCH;
    return nullptr;
  }
  return app;
}

std::unique_ptr<AppMemory> AppMemory::Adopt(int mem_fd, pid_t pid, int pidfd, Reach reach,
                                            int* error) {
  *error = CheckMemoryFile(mem_fd);
  if (*error != 0) return nullptr;
  const pid_t process = CanCompare(pid) ? pid : 0;
  std::unique_ptr<AppMemory> app(new AppMemory(process, mem_fd, reach));
  if (!app->KeepPidfd(pidfd, error)) return nullptr;
  app->mem_fd_ = mem_fd;
  if (app->Alive()) return app;
  *error = AddressSpaceGone(mem_fd) ? ESRCH : EPERM;
  app->mem_fd_ = -1;
  return nullptr;
}

const AppMemory* AppMemory::OwnProcess() {
  int error = 0;
  static const AppMemory* const own = Open(getpid(), -1, Reach::kProcess, &error).release();
  return own;
}

bool AppMemory::KeepPidfd(int pidfd, int* error) {
  if (pidfd < 0) return true;
  pidfd_ = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
  if (pidfd_ < 0) *error = errno;
  return pidfd_ >= 0;
}

AppMemory::Identity AppMemory::IdentityOf(pid_t pid, int mem_fd) {
  struct stat file;
  if (pid > 0 || fstat(mem_fd, &file) != 0) return {0, static_cast<uint64_t>(pid)};
  return {file.st_dev, file.st_ino};
}

std::shared_ptr<AppMemory::AtomicLocks> AppMemory::LocksOf(Identity program) {
  static std::mutex mutex;
  static std::map<Identity, std::weak_ptr<AtomicLocks>> by_program;
  const std::lock_guard guard(mutex);
  std::erase_if(by_program, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<AtomicLocks>& known = by_program[program];
  std::shared_ptr<AtomicLocks> locks = known.lock();
  if (locks == nullptr) known = locks = std::make_shared<AtomicLocks>();
  return locks;
}

AppMemory::~AppMemory() {
  if (pidfd_ >= 0) close(pidfd_);
  if (mem_fd_ >= 0) close(mem_fd_);
}

bool AppMemory::IsGone() const { return AddressSpaceGone(mem_fd_); }

bool AppMemory::Alive() const {
  return !AddressSpaceGone(mem_fd_) && (pidfd_ < 0 || !ProcessExited(pidfd_)) &&
         (!has_process() || HasAddressSpace(pid_, mem_fd_, random_va_));
}

bool AppMemory::AccessibleTo(uid_t uid) const {
  if (!has_process()) return false;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/maps", static_cast<int>(pid_));
  struct stat maps;
  // The kernel makes root the owner of these files if the user may not access the process
  // (proc(5)). For root, the process's own user ID tells more. The answer is about the opened
  // program if that is still alive after the check.
  return stat(path, &maps) == 0 && maps.st_uid == uid && (uid != 0 || RunsAsRoot(pid_)) && Alive();
}

namespace {

// A short read by the memory's file costs less than by process number, which needs a check of the
// address space as well; a long read costs more. Not for writes: by the file they also change
// read-only pages.
bool IsShortRead(Direction direction, std::span<const iovec> remote) {
  constexpr size_t kShort = 512;
  return direction == Direction::kFromApp && remote.size() == 1 && remote[0].iov_len <= kShort;
}

}  // namespace

size_t AppMemory::Transfer(Direction direction, std::span<const iovec> local,
                           std::span<const iovec> remote) const {
  if (reach_ == Reach::kProcess) {
    // After a failed short read: process_vm_readv may wait for a page of the program's userfaultfd.
    if (IsShortRead(direction, remote)) {
      const auto va = reinterpret_cast<uintptr_t>(remote[0].iov_base);
      if (MoveRun(mem_fd_, direction, local, va) == remote[0].iov_len) return remote[0].iov_len;
    }
    if (const auto moved = TransferByProcess(direction, local, remote)) return *moved;
  }
  return TransferByAddressSpace(direction, local, remote);
}

size_t AppMemory::TransferByAddressSpace(Direction direction, std::span<const iovec> local,
                                         std::span<const iovec> remote) const {
  constexpr size_t kPieces = 64;
  std::array<iovec, kPieces> pieces;
  RunCursor cursor(local);
  size_t moved = 0;
  for (const iovec& run : remote) {
    for (size_t done = 0; done < run.iov_len;) {
      size_t taken = 0;
      const std::span<const iovec> parts = cursor.Take(run.iov_len - done, pieces, &taken);
      const auto va = reinterpret_cast<uintptr_t>(run.iov_base) + done;
      const size_t now = MoveRun(mem_fd_, direction, parts, va);
      moved += now;
      if (now != taken) return moved;
      done += taken;
    }
  }
  return moved;
}

// nullopt: the process number no longer gives an address space. It names the main thread, which may
// have ended before the others.
std::optional<size_t> AppMemory::TransferByProcess(Direction direction,
                                                   std::span<const iovec> local,
                                                   std::span<const iovec> remote) const {
  ssize_t moved;
  if (direction == Direction::kToApp) {
    // process_vm takes a process number: check first that no other program gets the bytes.
    if (AddressSpaceGone(mem_fd_)) return 0;
    moved = process_vm_writev(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
  } else {
    moved = process_vm_readv(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
    // The address space exists after the read, so it existed during it: the bytes are the
    // program's.
    if (moved > 0 && AddressSpaceGone(mem_fd_)) return 0;
  }
  if (moved < 0 && errno == ESRCH) return std::nullopt;
  return moved < 0 ? 0 : static_cast<size_t>(moved);
}

MemoryStatus AppMemory::Read(uint64_t va, std::span<std::byte> to) const {
  const iovec local{to.data(), to.size()};
  const iovec remote{reinterpret_cast<void*>(va), to.size()};
  return Transfer(Direction::kFromApp, {&local, 1}, {&remote, 1}) == to.size()
             ? MemoryStatus::kOk
             : MemoryStatus::kFault;
}

MemoryStatus AppMemory::Write(uint64_t va, std::span<const std::byte> from) const {
  const iovec local{const_cast<std::byte*>(from.data()), from.size()};
  const iovec remote{reinterpret_cast<void*>(va), from.size()};
  return Transfer(Direction::kToApp, {&local, 1}, {&remote, 1}) == from.size()
             ? MemoryStatus::kOk
             : MemoryStatus::kFault;
}

}  // namespace roci::memory
