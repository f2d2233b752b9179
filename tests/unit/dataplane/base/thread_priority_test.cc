#include "dataplane/base/thread_priority.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "dataplane/base/priority_guard.h"

namespace roci::dataplane {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1000 * kMs;

int Policy() { return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK; }

// On a thread of its own, since a priority belongs to a thread.
void OnThread(const std::function<void()>& body) { std::thread(body).join(); }

bool MayBeRealtime() {
  bool may = false;
  OnThread([&] {
    sched_param parameter{};
    parameter.sched_priority = 1;
    may = sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
  });
  return may;
}

// Takes CAP_SYS_NICE from the calling thread. RLIMIT_RTPRIO of the tests is 0.
bool DropNice() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1u << CAP_SYS_NICE);
  data[0].permitted &= ~(1u << CAP_SYS_NICE);
  return syscall(SYS_capset, &header, data) == 0;
}

class RealtimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MayBeRealtime()) GTEST_SKIP() << "this process may not have real-time priority";
  }
};

TEST_F(RealtimeTest, IsRealtimeFromTheStartAndLoweredOnDemand) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, kLcorePriority, kStart);
    EXPECT_EQ(priority.realtime_priority(), kLcorePriority);
    EXPECT_EQ(Policy(), SCHED_FIFO);
    sched_param parameter{};
    sched_getparam(0, &parameter);
    EXPECT_EQ(parameter.sched_priority, kLcorePriority);
    priority.Lower(kStart + kMs);
    EXPECT_EQ(Policy(), SCHED_OTHER);
    priority.Raise(kStart + 2 * kMs);
    EXPECT_EQ(Policy(), SCHED_FIFO);
  });
}

TEST_F(RealtimeTest, IsLoweredAfterAWhileAndRaisedAgainOnlyWithWork) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    EXPECT_FALSE(priority.Adjust(kStart + ThreadPriority::kRaisedNs - 1, true));
    const uint64_t lowered = kStart + ThreadPriority::kRaisedNs;
    EXPECT_TRUE(priority.Adjust(lowered, true));
    EXPECT_EQ(Policy(), SCHED_OTHER);
    EXPECT_FALSE(priority.Adjust(lowered + ThreadPriority::kLoweredNs - 1, true));
    EXPECT_TRUE(priority.is_lowered());
    EXPECT_TRUE(priority.Adjust(lowered + ThreadPriority::kLoweredNs, false));
    EXPECT_TRUE(priority.is_lowered()) << "an idle thread needs no priority";
    EXPECT_FALSE(priority.Adjust(priority.next_change_ns(), true));
    EXPECT_EQ(Policy(), SCHED_FIFO);
  });
}

// In the long run real-time threads get less than the 95 % at which kernels throttle them.
TEST_F(RealtimeTest, ABusyThreadIsRealtimeForLessThanTheKernelsBound) {
  static_assert(ThreadPriority::kRaisedNs * 100 <
                95 * (ThreadPriority::kRaisedNs + ThreadPriority::kLoweredNs));
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    uint64_t raised = 0;
    for (uint64_t now = kStart; now < kStart + 2200 * kMs; now += kMs) {
      raised += !priority.is_lowered();
      priority.Adjust(now, true);
    }
    EXPECT_GT(raised, 1900u);
    EXPECT_LT(raised, 2090u);
  });
}

TEST_F(RealtimeTest, SleepsCountAsTimeLeftToOthers) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    priority.NoteSleep(kStart + 10 * kMs, kStart + 10 * kMs);
    EXPECT_EQ(priority.next_change_ns(), kStart + ThreadPriority::kRaisedNs) << "it did not sleep";
    priority.NoteSleep(kStart + 10 * kMs, kStart + 11 * kMs);
    EXPECT_GT(priority.next_change_ns(), kStart + ThreadPriority::kRaisedNs);
    EXPECT_LE(priority.next_change_ns(), kStart + 11 * kMs + ThreadPriority::kRaisedNs);
    priority.NoteSleep(kStart + 20 * kMs, kStart + 900 * kMs);
    EXPECT_EQ(priority.next_change_ns(), kStart + 900 * kMs + ThreadPriority::kRaisedNs);
  });
}

// A lowered thread whose loop makes no progress gets its priority back, and can lower itself again.
TEST_F(RealtimeTest, TheGuardRaisesALoweredThreadThatMakesNoProgress) {
  ThreadPriority priority;
  PriorityGuard guard;
  guard.Add(priority);
  OnThread([&] {
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    for (int i = 0; i < 3; ++i) {
      priority.Lower(kStart);
      for (int tries = 0; tries < 5000 && Policy() != SCHED_FIFO; ++tries) usleep(1000);
      ASSERT_EQ(Policy(), SCHED_FIFO);
      EXPECT_TRUE(priority.is_lowered()) << "as the thread itself left it";
    }
    priority.Raise(kStart);
    EXPECT_FALSE(priority.is_lowered());
  });
}

TEST_F(RealtimeTest, AThreadThatTheGuardHasRaisedCanLowerItselfAgain) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    priority.Lower(kStart);
    priority.RaiseLowered();
    EXPECT_EQ(Policy(), SCHED_FIFO);
    priority.Lower(kStart);
    EXPECT_EQ(Policy(), SCHED_OTHER);
  });
}

// New work does not shorten the time that a busy thread leaves to others.
TEST_F(RealtimeTest, NewWorkDoesNotEndTheTimeLeftToOthers) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    const uint64_t lowered = kStart + ThreadPriority::kRaisedNs;
    ASSERT_TRUE(priority.Adjust(lowered, true));
    priority.RaiseUnlessBounded(lowered + ThreadPriority::kLoweredNs - 1);
    EXPECT_TRUE(priority.is_lowered());
    priority.RaiseUnlessBounded(lowered + ThreadPriority::kLoweredNs);
    EXPECT_FALSE(priority.is_lowered());
  });
}

TEST_F(RealtimeTest, ThreadsThatItCreatesAreOrdinary) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    OnThread([] { EXPECT_EQ(Policy(), SCHED_OTHER); });
    priority.Lower(kStart);
    OnThread([] {
      EXPECT_EQ(Policy(), SCHED_OTHER);
      EXPECT_GE(getpriority(PRIO_PROCESS, 0), 0);
    });
  });
}

TEST_F(RealtimeTest, KeepsAPolicyThatWasSetForTheProcess) {
  OnThread([] {
    sched_param parameter{};
    parameter.sched_priority = 7;
    ASSERT_EQ(sched_setscheduler(0, SCHED_RR, &parameter), 0);
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    priority.Lower(kStart);
    EXPECT_EQ(Policy(), SCHED_RR);
    EXPECT_EQ(priority.next_change_ns(), ThreadPriority::kNever);
  });
}

TEST(ThreadPriorityTest, OffLeavesAnOrdinaryThread) {
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kOff, kLcorePriority, kStart);
    EXPECT_EQ(priority.realtime_priority(), 0);
    priority.Raise(kStart);
    EXPECT_EQ(Policy(), SCHED_OTHER);
    EXPECT_EQ(priority.next_change_ns(), ThreadPriority::kNever);
  });
}

TEST(ThreadPriorityTest, AThreadWithoutThePrivilegeStaysOrdinary) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_RTPRIO, &limit), 0);
  if (limit.rlim_cur != 0) GTEST_SKIP() << "RLIMIT_RTPRIO allows it";
  OnThread([] {
    ASSERT_TRUE(DropNice());
    for (const RealtimeUse use : {RealtimeUse::kAuto, RealtimeUse::kOn}) {
      ThreadPriority priority;
      priority.Take(use, kLcorePriority, kStart);
      EXPECT_EQ(priority.realtime_priority(), 0);
      EXPECT_EQ(Policy(), SCHED_OTHER);
    }
  });
}

// If the privilege is revoked while the thread is lowered, the thread continues with ordinary
// priority.
TEST_F(RealtimeTest, AThreadThatLosesThePrivilegeStaysOrdinary) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_RTPRIO, &limit), 0);
  if (limit.rlim_cur != 0) GTEST_SKIP() << "RLIMIT_RTPRIO allows it";
  OnThread([] {
    ThreadPriority priority;
    priority.Take(RealtimeUse::kAuto, 1, kStart);
    priority.Lower(kStart);
    ASSERT_TRUE(DropNice());
    priority.Raise(kStart + kMs);
    EXPECT_EQ(priority.realtime_priority(), 0);
    EXPECT_EQ(priority.next_change_ns(), ThreadPriority::kNever);
  });
}

}  // namespace
}  // namespace roci::dataplane
