// The registry of descriptors by number.
#include "verbs_provider/intercept/fd_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace roci::provider {
namespace {

TEST(FdRegistry, FindsOnlyRegisteredDescriptors) {
  int owner = 0;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ASSERT_TRUE(AddFd(fds[0], FdKind::kAsyncEvents, &owner));
  void* found = nullptr;
  EXPECT_EQ(FindFd(fds[0], &found), FdKind::kAsyncEvents);
  EXPECT_EQ(found, &owner);
  found = nullptr;
  EXPECT_EQ(FindFd(fds[1], &found), FdKind::kNone);
  EXPECT_EQ(found, nullptr);
  for (int fd : {-1, -2147483647 - 1, 2147483647, 1 << 20}) {
    EXPECT_EQ(FindFd(fd, nullptr), FdKind::kNone) << fd;
    RemoveFd(fd);
  }
  RemoveFd(fds[0]);
  EXPECT_EQ(FindFd(fds[0], nullptr), FdKind::kNone);
  close(fds[0]);
  close(fds[1]);
}

TEST(FdRegistry, RefusesDescriptorsThatAreNotOpen) {
  EXPECT_FALSE(AddFd(-1, FdKind::kCommand, nullptr));
  EXPECT_FALSE(AddFd(2147483647, FdKind::kCommand, nullptr));
}

TEST(FdRegistry, TakesTheHighestPossibleNumber) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const int highest = static_cast<int>(limit.rlim_max) - 1;
  const int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(fd, highest), highest);
  ASSERT_TRUE(AddFd(highest, FdKind::kCommand, nullptr));
  EXPECT_EQ(FindFd(highest, nullptr), FdKind::kCommand);
  EXPECT_EQ(FindFd(highest - 1, nullptr), FdKind::kNone);
  EXPECT_EQ(FindFd(fd, nullptr), FdKind::kNone);
  RemoveFd(highest);
  close(highest);
  close(fd);
}

TEST(FdRegistry, RemovesANumberThatIsAnotherFile) {
  int first[2];
  int second[2];
  ASSERT_EQ(pipe(first), 0);
  ASSERT_EQ(pipe(second), 0);
  ASSERT_TRUE(AddFd(first[0], FdKind::kCompletionChannel, nullptr));
  EXPECT_TRUE(IsSameFile(first[0]));
  ASSERT_EQ(dup2(second[0], first[0]), first[0]);
  EXPECT_FALSE(IsSameFile(first[0]));
  EXPECT_EQ(FindFd(first[0], nullptr), FdKind::kNone);
  for (int fd : {first[0], first[1], second[0], second[1]}) close(fd);
}

TEST(FdRegistry, LetsExactlyOneThreadExchangeAKind) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(AddFd(fds[0], FdKind::kAsyncEvents, nullptr));
    std::atomic<int> winners = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&] { winners += ExchangeKind(fds[0], FdKind::kAsyncEvents, FdKind::kLost) ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
  }
  RemoveFd(fds[0]);
  close(fds[0]);
  close(fds[1]);
}

TEST(FdRegistry, GrowsFromManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  const int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int mine = fcntl(fd, F_DUPFD_CLOEXEC, 300 + t * kEach);
        void* owner = nullptr;
        if (!AddFd(mine, FdKind::kCommand, &wrong)) ++wrong;
        if (FindFd(mine, &owner) != FdKind::kCommand || owner != &wrong) ++wrong;
        RemoveFd(mine);
        close(mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  close(fd);
}

}  // namespace
}  // namespace roci::provider
