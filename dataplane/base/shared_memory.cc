#include "dataplane/base/shared_memory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace roci::dataplane {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = other.Release();
  }
  return *this;
}

void Fd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// F_SEAL_FUTURE_WRITE would do it too, but only once the program has mapped the memory.
bool KeepPages(int fd) {
  int flags = FS_IMMUTABLE_FL;
  return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const char* name, size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  SharedMemory memory;
  memory.size_ = (size + page - 1) / page * page;
  memory.fd_ = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  if (ftruncate(memory.fd_.get(), static_cast<off_t>(memory.size_)) != 0) {
    return absl::ErrnoToStatus(errno, "memfd size");
  }
  if (fcntl(memory.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "memfd seals");
  }
  KeepPages(memory.fd_.get());
  void* data = mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_.get(), 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a memfd");
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, size_);
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace roci::dataplane
