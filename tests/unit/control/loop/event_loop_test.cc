#include "control/loop/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

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

void SpinFor(roce::TimeNs ns) {
  for (const roce::TimeNs end = MonotonicNow() + ns; MonotonicNow() < end;) continue;
}

// Descriptors of one user that are always ready.
class Flood {
 public:
  Flood(EventLoop& loop, size_t count, const std::function<void(size_t)>& handler) : runs(count) {
    for (size_t i = 0; i < count; ++i) {
      fds_.push_back(Readable());
      watches.push_back(*loop.Add(
          fds_.back().get(), EPOLLIN,
          [this, handler, i](uint32_t) {
            ++runs[i];
            handler(i);
          },
          share));
    }
  }
  int all_runs() const { return std::accumulate(runs.begin(), runs.end(), 0); }

  const std::shared_ptr<LoopShare> share = std::make_shared<LoopShare>();
  std::vector<int> runs;
  std::vector<EventLoop::Watch> watches;

 private:
  std::vector<UniqueFd> fds_;
};

TEST(EventLoopSharesTest, AFloodDelaysAnotherShareByAFewHandlers) {
  constexpr int kWarmUp = 1000;
  constexpr roce::TimeNs kHandlerNs = 300'000;
  const auto loop = *EventLoop::Create();
  const UniqueFd asks(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int asked_at = 0;
  std::vector<int> delays;  // in handlers
  Flood flood(*loop, 500, [&](size_t) {
    SpinFor(kHandlerNs);
    const int runs = flood.all_runs();
    if (runs < kWarmUp || asked_at != 0) return;
    asked_at = runs;
    eventfd_write(asks.get(), 1);
  });
  ASSERT_TRUE(loop->Add(
                      asks.get(), EPOLLIN,
                      [&](uint32_t) {
                        delays.push_back(flood.all_runs() - asked_at);
                        asked_at = 0;
                        eventfd_t count;
                        eventfd_read(asks.get(), &count);
                        if (delays.size() == 20) loop->Stop();
                      },
                      std::make_shared<LoopShare>())
                  .ok());
  loop->Run();
  // The quantum allows four in a row, of which one may be under way.
  EXPECT_LE(*std::max_element(delays.begin(), delays.end()), 5);
  const auto [least, most] = std::minmax_element(flood.runs.begin(), flood.runs.end());
  EXPECT_LE(*most - *least, 2) << "watches of a share take turns, too";
  EXPECT_GT(flood.share->used_ns(), kWarmUp * kHandlerNs);
}

// The handlers only say that they took so long: what this thread waits for a processor must be
// little beside that.
TEST(EventLoopSharesTest, DearHandlersGetTheSameTime) {
  constexpr roce::TimeNs kLong = 10 * LoopShare::kQuantumNs;
  constexpr roce::TimeNs kShort = LoopShare::kQuantumNs / 10;
  constexpr roce::TimeNs kAll = 5'000 * LoopShare::kQuantumNs;
  const auto loop = *EventLoop::Create();
  roce::TimeNs of_dear = 0;
  roce::TimeNs of_cheap = 0;
  Flood dear(*loop, 3, [&](size_t) {
    dear.share->Charge(kLong);
    of_dear += kLong;
  });
  Flood cheap(*loop, 3, [&](size_t) {
    cheap.share->Charge(kShort);
    of_cheap += kShort;
    if (of_cheap > kAll) loop->Stop();
  });
  loop->Run();
  EXPECT_GT(of_dear, of_cheap / 2);
  EXPECT_LT(of_dear, of_cheap * 2);
}

TEST(EventLoopSharesTest, WaitingWatchesMayBeChangedAndForgotten) {
  const auto loop = *EventLoop::Create();
  int rounds = 0;
  Flood flood(*loop, 100, [&](size_t i) {
    SpinFor(LoopShare::kQuantumNs);
    if (i == 0 && ++rounds == 1) {
      loop->Change(flood.watches[50], 0);
      for (size_t other = 51; other < 100; ++other) loop->Forget(flood.watches[other]);
    }
    if (rounds == 3) loop->Stop();
  });
  loop->Run();
  EXPECT_EQ(flood.runs[49], 2);
  EXPECT_LE(std::accumulate(flood.runs.begin() + 50, flood.runs.end(), 0), 1)
      << "one may have run before the first";
}

TEST(EventLoopSharesTest, TheEndOfAConnectionTakesNoTurn) {
  const auto loop = *EventLoop::Create();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  int runs = 0;
  Flood flood(*loop, 100, [&](size_t) {
    SpinFor(LoopShare::kQuantumNs);
    if (++runs == 1) other.Reset();
  });
  ASSERT_TRUE(loop->Add(
                      own.get(), EPOLLIN,
                      [&](uint32_t events) {
                        EXPECT_NE(events & EPOLLHUP, 0u);
                        loop->Stop();
                      },
                      flood.share)
                  .ok());
  loop->Run();
  EXPECT_LE(runs, 3);
}

}  // namespace
}  // namespace roci::control
