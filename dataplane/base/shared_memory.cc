#include "dataplane/base/shared_memory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "memory/unmapper.h"

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

SharedMemory::SharedMemory() = default;

absl::StatusOr<SharedMemory> SharedMemory::Create(const char* name, size_t size,
                                                  std::shared_ptr<memory::RetiredUse> use) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  SharedMemory shared;
  shared.size_ = (size + page - 1) / page * page;
  if (shared.size_ >= kRetiredBytes) {
    shared.retired_ = std::make_unique<memory::RetiredMapping>();
    shared.retired_->use = std::move(use);
  }
  shared.fd_ = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!shared.fd_.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  if (ftruncate(shared.fd_.get(), static_cast<off_t>(shared.size_)) != 0) {
    return absl::ErrnoToStatus(errno, "memfd size");
  }
  if (fcntl(shared.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "memfd seals");
  }
  KeepPages(shared.fd_.get());
  void* data = mmap(nullptr, shared.size_, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd_.get(), 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a memfd");
  shared.data_ = static_cast<std::byte*>(data);
  return shared;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      retired_(std::move(other.retired_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    Unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    retired_ = std::move(other.retired_);
  }
  return *this;
}

SharedMemory::~SharedMemory() { Unmap(); }

void SharedMemory::Unmap() {
  if (data_ == nullptr) return;
  if (retired_ == nullptr) {
    munmap(data_, size_);
    return;
  }
  retired_->base = data_;
  retired_->length = size_;
  memory::Unmapper::Retire(retired_.release());
}

}  // namespace roci::dataplane
