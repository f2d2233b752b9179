// Inspection of descriptors that programs pass.
#include "memory/local_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>
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

// Bytes that this process has read, from files of the kernel as well.
uint64_t BytesRead() {
  std::ifstream counters("/proc/self/io");
  for (std::string word; counters >> word;) {
    uint64_t bytes = 0;
    if (word == "rchar:" && counters >> bytes) return bytes;
  }
  return 0;
}

// The list of mounts may be long, and programs pass descriptors as often as they like.
TEST(LocalFile, TheListOfMountsIsReadOnlyAfterChanges) {
  char path[] = "/tmp/roci-local-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  ASSERT_GE(fd, 0);
  unlink(path);
  const bool is_local = InspectLocalFile(fd).has_value();
  const uint64_t before = BytesRead();
  constexpr int kCalls = 1000;
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(InspectLocalFile(fd).has_value(), is_local);
  EXPECT_LT(BytesRead() - before, uint64_t{100} * kCalls);
  close(fd);
}

// In a namespace that the child makes.
TEST(LocalFile, ANewMountIsFound) {
  if (geteuid() != 0) GTEST_SKIP() << "no mounts";
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_SLAVE, nullptr) != 0) _exit(77);
    for (int i = 0; i < 2; ++i) {
      char folder[] = "/tmp/roci-mount-XXXXXX";
      if (mkdtemp(folder) == nullptr || mount("new", folder, "ramfs", 0, nullptr) != 0) _exit(77);
      // No seals on ramfs, so only the list of mounts tells.
      const std::string file = std::string(folder) + "/file";
      const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (fd < 0 || !InspectLocalFile(fd).has_value()) _exit(1);
      close(fd);
      umount(folder);
      rmdir(folder);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace roci::memory
