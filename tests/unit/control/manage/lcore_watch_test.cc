#include "control/manage/lcore_watch.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace roci::control {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr pid_t kThread = 17;

dataplane::ProcessorTime Waited(uint64_t ms) { return {.ran_ns = 0, .waited_ns = ms * kMs}; }

TEST(StarvationJudgeTest, ComparesTheWaitWithTheTimeBetweenTwoLooks) {
  StarvationJudge judge;
  EXPECT_FALSE(judge.IsStarved(kThread, Waited(50'000), 1000 * kMs))
      << "waited before the first look";
  EXPECT_FALSE(judge.IsStarved(kThread, Waited(50'400), 3000 * kMs))
      << "a fifth is not more than a fifth";
  EXPECT_EQ(judge.waited_ns(), 400 * kMs);
  EXPECT_TRUE(judge.IsStarved(kThread, Waited(50'801), 5000 * kMs));
  EXPECT_EQ(judge.waited_ns(), 401 * kMs);
  EXPECT_FALSE(judge.IsStarved(kThread, Waited(50'801), 7000 * kMs));
}

TEST(StarvationJudgeTest, StartsAfreshWithAnotherThread) {
  StarvationJudge judge;
  EXPECT_FALSE(judge.IsStarved(kThread, Waited(50'000), 1000 * kMs));
  EXPECT_FALSE(judge.IsStarved(kThread + 1, Waited(40), 3000 * kMs));
  EXPECT_FALSE(judge.IsStarved(kThread, Waited(90'000), 5000 * kMs));
  EXPECT_TRUE(judge.IsStarved(kThread, Waited(91'000), 7000 * kMs));
}

TEST(ProcessorTimeTest, GrowsWithTheThreadsRunningTime) {
  const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  const auto before = dataplane::ReadProcessorTime(thread);
  if (!before) GTEST_SKIP() << "the kernel does not count it";
  uint64_t ran = before->ran_ns;
  for (volatile uint64_t i = 0; ran < before->ran_ns + kMs;) {
    i = i + 1;
    if (i % 100'000 == 0) ran = dataplane::ReadProcessorTime(thread)->ran_ns;
    ASSERT_LT(i, 100'000'000'000u);
  }
}

TEST(ProcessorTimeTest, AThreadThatIsGoneHasNone) {
  EXPECT_FALSE(dataplane::ReadProcessorTime(0).has_value());
}

TEST(ProcessorTimeTest, TellsSleepFromWork) {
  EXPECT_FALSE(dataplane::Sleeps(gettid()));
  std::atomic<pid_t> thread{0};
  std::promise<void> end;
  std::thread sleeper([&] {
    thread = gettid();
    end.get_future().wait();
  });
  while (thread == 0) std::this_thread::yield();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!dataplane::Sleeps(thread) && std::chrono::steady_clock::now() < limit) continue;
  EXPECT_TRUE(dataplane::Sleeps(thread));
  end.set_value();
  sleeper.join();
  EXPECT_TRUE(dataplane::Sleeps(0)) << "there is none";
}

}  // namespace
}  // namespace roci::control
