// Memory shared with one program: a memfd that the daemon creates, protects from changes of its
// size and from holes, and maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace roci::memory {
struct RetiredMapping;
struct RetiredUse;
}  // namespace roci::memory

namespace roci::dataplane {

// Owner of a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Reset();

 private:
  int fd_ = -1;
};

// Keeps programs from removing pages of the memfd `fd` (fallocate(2), MADV_REMOVE): an access of an
// lcore would wait while the kernel removes them from all mappings. `fd` can still be mapped
// read-write. False: needs CAP_LINUX_IMMUTABLE and Linux 6.0.
bool KeepPages(int fd);

// Zeroed, page aligned, mapped read-write and shared. The program can neither truncate it (so
// touching it never raises SIGBUS) nor add seals, nor punch holes (KeepPages). The destructor
// unmaps it, or hands memory of kRetiredBytes and more to the unmapper (memory/unmapper.h): to
// unmap 64 MiB and to free their pages takes 10 ms.
class SharedMemory {
 public:
  static constexpr size_t kRetiredBytes = size_t{1} << 20;

  SharedMemory();
  // `name` shows in /proc/PID/maps. `size` is rounded up to whole pages. While the
  // unmapper has the memory, it counts towards `use`, which belongs to a user; null: towards no
  // user's. ResourceExhausted: memory or descriptors are short.
  static absl::StatusOr<SharedMemory> Create(const char* name, size_t size,
                                             std::shared_ptr<memory::RetiredUse> use = nullptr);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // The memfd, to be passed to the program and then closed (the mapping stays).
  Fd TakeFd() { return static_cast<Fd&&>(fd_); }
  int fd() const { return fd_.get(); }

 private:
  void Unmap();

  Fd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<memory::RetiredMapping> retired_;  // for the unmapper, allocated in advance
};

}  // namespace roci::dataplane
