#include "control/loop/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace roci::control {
namespace {

UniqueFd Readable() { return UniqueFd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

TEST(EventLoopTest, HandlerMayForgetAnotherThatIsReady) {
  const auto loop = *EventLoop::Create();
  const UniqueFd a = Readable();
  const UniqueFd b = Readable();
  EventLoop::Watch watch_a = 0;
  EventLoop::Watch watch_b = 0;
  int runs = 0;
  watch_a = *loop->Add(a.get(), EPOLLIN, [&](uint32_t) {
    ++runs;
    loop->Forget(watch_b);
    loop->Stop();
  });
  watch_b = *loop->Add(b.get(), EPOLLIN, [&](uint32_t) {
    ++runs;
    loop->Forget(watch_a);
    loop->Stop();
  });
  loop->Run();
  EXPECT_EQ(runs, 1);
}

TEST(EventLoopTest, HandlerMayForgetItself) {
  const auto loop = *EventLoop::Create();
  const UniqueFd fd = Readable();
  EventLoop::Watch watch = 0;
  const auto token = std::make_shared<int>(5);
  std::weak_ptr<int> alive = token;
  watch = *loop->Add(fd.get(), EPOLLIN, [&loop, &watch, token](uint32_t) {
    loop->Forget(watch);
    EXPECT_EQ(*token, 5) << "what the handler owns lives until it returns";
    loop->Stop();
  });
  loop->Run();
}

TEST(EventLoopTest, TasksRunAfterTheHandlerAndMayPost) {
  const auto loop = *EventLoop::Create();
  const UniqueFd fd = Readable();
  std::string order;
  ASSERT_TRUE(loop->Add(fd.get(), EPOLLIN,
                        [&](uint32_t) {
                          loop->Post([&] {
                            order += "1";
                            loop->Post([&] { order += "2"; });
                          });
                          order += "h";
                          loop->Stop();
                        })
                  .ok());
  loop->Run();
  EXPECT_EQ(order, "h12");
}

TEST(EventLoopTest, DeadlinesRunWhenDueAndNotBefore) {
  const auto loop = *EventLoop::Create();
  const roce::TimeNs start = MonotonicNow();
  roce::TimeNs due = start + 20'000'000;
  roce::TimeNs ran = 0;
  loop->AddDeadline([] { return roce::kNever; }, [](roce::TimeNs) { FAIL(); });
  loop->AddDeadline([&] { return due; },
                    [&](roce::TimeNs now) {
                      ran = now;
                      due = roce::kNever;
                      loop->Stop();
                    });
  loop->Run();
  EXPECT_GE(ran, start + 20'000'000);
}

TEST(EventLoopTest, ChangeDisablesAndEnablesEvents) {
  const auto loop = *EventLoop::Create();
  const UniqueFd quiet = Readable();
  const UniqueFd other = Readable();
  int quiet_runs = 0;
  const EventLoop::Watch watch = *loop->Add(quiet.get(), EPOLLIN, [&](uint32_t) {
    ++quiet_runs;
    loop->Stop();
  });
  loop->Change(watch, 0);
  int rounds = 0;
  ASSERT_TRUE(loop->Add(other.get(), EPOLLIN,
                        [&](uint32_t) {
                          if (++rounds == 3) loop->Change(watch, EPOLLIN);
                        })
                  .ok());
  loop->Run();
  EXPECT_EQ(quiet_runs, 1);
  EXPECT_GE(rounds, 3);
}

}  // namespace
}  // namespace roci::control
