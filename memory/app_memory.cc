// process_vm calls on an app, and the checks that the app is still the one that was opened.
#include "memory/app_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>

namespace roci::memory {
namespace {

// Never mapped (below mmap_min_addr), so reading it costs no page lookup.
constexpr off_t kUnmappedAddress = 0;

bool ProcessExited(int pidfd) {
  pollfd poll_fd{pidfd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) != 0;
}

// An open /proc/PID/mem belongs to an address space, not to a number: reading a hole gives EIO
// while the address space is in use, and end of file once its last user exited or called exec.
bool AddressSpaceGone(int mem_fd) {
  char byte;
  return pread(mem_fd, &byte, 1, kUnmappedAddress) == 0;
}

int OpenMem(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/mem", static_cast<int>(pid));
  return open(path, O_RDONLY | O_CLOEXEC);
}

}  // namespace

std::unique_ptr<AppMemory> AppMemory::Open(pid_t pid, int pidfd, int* error) {
  *error = 0;
  int own_pidfd = -1;
  if (pidfd >= 0 && (own_pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0)) < 0) {
    *error = errno;
    return nullptr;
  }
  std::unique_ptr<AppMemory> app(new AppMemory(pid, own_pidfd, OpenMem(pid)));
  if (app->mem_fd_ < 0) {
    *error = errno == ENOENT ? ESRCH : errno == EACCES ? EPERM : errno;
    return nullptr;
  }
  // Only now is it certain that the number meant this process when its memory was opened.
  if (!app->Alive()) {
    *error = ESRCH;
    return nullptr;
  }
  return app;
}

std::shared_ptr<AppMemory::AtomicLocks> AppMemory::LocksOf(pid_t pid) {
  static std::mutex mutex;
  static std::map<pid_t, std::weak_ptr<AtomicLocks>> by_process;
  const std::lock_guard guard(mutex);
  std::erase_if(by_process, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<AtomicLocks>& known = by_process[pid];
  std::shared_ptr<AtomicLocks> locks = known.lock();
  if (locks == nullptr) known = locks = std::make_shared<AtomicLocks>();
  return locks;
}

AppMemory::~AppMemory() {
  if (pidfd_ >= 0) close(pidfd_);
  if (mem_fd_ >= 0) close(mem_fd_);
}

bool AppMemory::Alive() const {
  return !AddressSpaceGone(mem_fd_) && (pidfd_ < 0 || !ProcessExited(pidfd_));
}

bool AppMemory::AccessibleTo(uid_t uid) const {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/maps", static_cast<int>(pid_));
  struct stat maps;
  // The kernel gives these files to root where the user has no business in them (proc(5)). What was
  // found is true of the program that was opened if that one is there still.
  return stat(path, &maps) == 0 && maps.st_uid == uid && Alive();
}

size_t AppMemory::Transfer(Direction direction, std::span<const iovec> local,
                           std::span<const iovec> remote) const {
  ssize_t moved;
  if (direction == Direction::kToApp) {
    // process_vm takes a number: make sure first that no other program gets the bytes.
    if (AddressSpaceGone(mem_fd_)) return 0;
    moved = process_vm_writev(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
  } else {
    moved = process_vm_readv(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
    // The address space is alive after the read, so it was alive during it: the bytes are the
    // app's.
    if (moved > 0 && AddressSpaceGone(mem_fd_)) return 0;
  }
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
