// Memory that blocks every access, also by the kernel on behalf of another process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace roci::testing {

// Whoever touches [at, at + length) waits until Serve().
class WaitingMemory {
 public:
  WaitingMemory(std::byte* at, size_t length) : at_(at), length_(length) {
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (fd_ < 0 || ioctl(fd_, UFFDIO_API, &api) != 0) return;
    void* fresh =
        mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    uffdio_register range{};
    range.range = {reinterpret_cast<uint64_t>(at), length};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ = fresh == at && ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
  }
  ~WaitingMemory() {
    if (fd_ >= 0) close(fd_);  // waiting accesses continue
  }
  WaitingMemory(const WaitingMemory&) = delete;
  WaitingMemory& operator=(const WaitingMemory&) = delete;

  bool works() const { return works_; }
  // Waiting and later accesses fault: the memory becomes the mapping of an empty file.
  void TakeAway() {
    const int file = memfd_create("empty", MFD_CLOEXEC);
    EXPECT_EQ(mmap(at_, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), at_);
    close(file);
    close(std::exchange(fd_, -1));
  }
  // Fills all of it with `value`.
  void Serve(std::byte value) {
    const std::vector<std::byte> page(kPage, value);
    for (size_t done = 0; done < length_; done += kPage) {
      uffdio_copy copy{};
      copy.dst = reinterpret_cast<uint64_t>(at_ + done);
      copy.src = reinterpret_cast<uint64_t>(page.data());
      copy.len = kPage;
      ASSERT_EQ(ioctl(fd_, UFFDIO_COPY, &copy), 0);
    }
  }

 private:
  static constexpr size_t kPage = 4096;
  std::byte* at_;
  size_t length_;
  int fd_ = -1;
  bool works_ = false;
};

}  // namespace roci::testing
