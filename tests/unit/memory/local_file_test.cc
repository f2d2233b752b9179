// Inspection of descriptors that programs pass.
#include "memory/local_file.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "tests/unit/waiting_memory.h"

namespace roci::memory {
namespace {

constexpr size_t kPage = 4096;

// While a thread waits for the page to which epoll_wait(2) writes, the kernel holds a lock that a
// look at the descriptor's fdinfo takes, too.
TEST(LocalFile, AnEpollDescriptorInUseIsInspectedWithoutWaiting) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  testing::WaitingMemory waiting(static_cast<std::byte*>(page), kPage);
  if (!waiting.works()) GTEST_SKIP() << "no userfaultfd";
  const int ready = eventfd(1, EFD_CLOEXEC);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, ready, &event), 0);
  std::atomic<bool> returned{false};
  std::thread program([&] {
    epoll_wait(epoll, static_cast<epoll_event*>(page), 1, -1);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it waits, most likely
  std::future<bool> is_dma_buffer = std::async(std::launch::async, IsDmaBuffer, epoll);
  const bool answered =
      is_dma_buffer.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(answered);
  EXPECT_FALSE(returned);
  waiting.Serve(std::byte{0});
  program.join();
  EXPECT_FALSE(is_dma_buffer.get());
  EXPECT_FALSE(InspectLocalFile(epoll).has_value());
  close(epoll);
  close(ready);
  munmap(page, kPage);
}

}  // namespace
}  // namespace roci::memory
