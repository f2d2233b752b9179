// Memory of a program whose pages arrive late (userfaultfd): the daemon's accesses wait.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace roci::testing {

// Each page arrives `delay` after its first access.
class LateMemory {
 public:
  explicit LateMemory(std::chrono::milliseconds delay = std::chrono::milliseconds(5))
      : delay_(delay) {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register range{};
    // All pages but the ends, which registration reads.
    range.range = {address() + kPage, kBytes - 2 * kPage};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ =
        fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
    if (works_) server_ = std::thread([this] { Serve(); });
  }
  ~LateMemory() {
    stop_ = true;
    if (server_.joinable()) server_.join();
    if (fd_ >= 0) close(fd_);
    munmap(memory_, kBytes);
  }
  LateMemory(const LateMemory&) = delete;
  LateMemory& operator=(const LateMemory&) = delete;

  // False: the kernel does not support userfaultfd for kernel faults.
  bool works() const { return works_; }
  void* data() const { return memory_; }
  size_t size() const { return kBytes; }
  // Address of the first page that arrives late.
  uint64_t late_address() const { return address() + kPage; }
  // Waits until no page is being served. Then all pages are missing again.
  void Empty() {
    while (faults_ != filled_) usleep(100);
    madvise(memory_, kBytes, MADV_DONTNEED);
  }
  // Accesses that have had to wait for a page.
  uint32_t faults() const { return faults_; }
  // An access waits for a page.
  bool IsAwaited() const { return faults_ != served_; }
  // Checks that there is no access now and in the next 20 ms.
  void ExpectNoAccess() const {
    const uint32_t served = served_;
    const uint32_t before = faults_;
    EXPECT_EQ(before, served) << "an access waits for its page";
    usleep(20'000);
    EXPECT_EQ(faults_, before) << "a late access";
  }

 private:
  static constexpr size_t kBytes = 256 << 10;
  static constexpr uint64_t kPage = 4096;
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  void Serve() {
    static const std::vector<uint8_t> page(kPage);
    while (!stop_) {
      pollfd readable{fd_, POLLIN, 0};
      uffd_msg message{};
      if (poll(&readable, 1, 20) != 1 || read(fd_, &message, sizeof message) != sizeof message)
        continue;
      ++faults_;
      std::this_thread::sleep_for(delay_);
      ++served_;  // before the access continues
      uffdio_copy copy{};
      copy.dst = message.arg.pagefault.address / kPage * kPage;
      copy.src = reinterpret_cast<uint64_t>(page.data());
      copy.len = kPage;
      ioctl(fd_, UFFDIO_COPY, &copy);
      ++filled_;
    }
  }

  const std::chrono::milliseconds delay_;
  void* memory_;
  int fd_;
  bool works_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> faults_{0};
  std::atomic<uint32_t> served_{0};
  std::atomic<uint32_t> filled_{0};
  std::thread server_;
};

// More precise than a sleep: a copy counts as stalled after 0.3 ms.
inline void SpinFor(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) continue;
}

}  // namespace roci::testing
