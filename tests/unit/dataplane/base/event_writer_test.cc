// Events of a user whose sockets take long to write to are written by a thread.
#include "dataplane/base/event_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace roci::testing {
namespace {

using dataplane::EventSocket;
using dataplane::EventWriter;
using dataplane::Fd;
using Result = EventSocket::Result;

class EventWriterTest : public ::testing::Test {
 protected:
  EventWriterTest() {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_TRUE(writer_->Start());
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    reading_ = Fd(ends[0]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const timeval patience{30, 0};
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    socket_ = std::make_shared<EventSocket>(Fd(ends[1]), writer_);
  }
  Result Write(uint64_t event) {
    return socket_->Write(std::as_bytes(std::span(&event, 1)), slow_);
  }
  // Waits for an event.
  uint64_t Read() {
    uint64_t event = ~uint64_t{0};
    EXPECT_EQ(read(reading_.get(), &event, sizeof(event)), ssize_t{sizeof(event)});
    return event;
  }

  dataplane::Counter slow_;
  std::shared_ptr<EventWriter> writer_ = std::make_shared<EventWriter>();
  Fd reading_;
  std::shared_ptr<EventSocket> socket_;
};

TEST_F(EventWriterTest, WritesItselfAtFirst) {
  ASSERT_EQ(Write(7), Result::kWritten);
  uint64_t event = 0;
  EXPECT_EQ(recv(reading_.get(), &event, sizeof(event), MSG_DONTWAIT), ssize_t{sizeof(event)});
  EXPECT_EQ(event, 7U);
  EXPECT_FALSE(socket_->has_pending());
}

TEST_F(EventWriterTest, KeepsTheOrderOfManyEvents) {
  constexpr uint64_t kEvents = 5000;
  ASSERT_EQ(Write(0), Result::kWritten);
  writer_->SetSlow();
  std::thread reader([&] {
    for (uint64_t i = 0; i < kEvents && !HasFailure(); ++i) ASSERT_EQ(Read(), i);
  });
  for (uint64_t i = 1; i < kEvents && !HasFailure();) {
    const Result result = Write(i);
    ASSERT_NE(result, Result::kClosed);
    if (result == Result::kWritten) ++i;
    std::this_thread::yield();
  }
  reader.join();
}

// The program does not read: a bounded number of events is taken, and none of them is lost.
TEST_F(EventWriterTest, IsFullWhenTheSocketIs) {
  writer_->SetSlow();
  uint64_t taken = 0;
  for (int idle = 0; idle < 200;) {
    if (Write(taken) == Result::kWritten) {
      ++taken;
      idle = 0;
      ASSERT_LT(taken, 100'000U);
    } else {
      ++idle;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_TRUE(socket_->has_pending());
  for (uint64_t i = 0; i < taken; ++i) ASSERT_EQ(Read(), i);
}

TEST_F(EventWriterTest, NoticesThatTheProgramHasClosedItsEnd) {
  writer_->SetSlow();
  reading_.Reset();
  Result result = Write(1);
  for (int i = 0; i < 30'000 && result != Result::kClosed; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = Write(1);
  }
  EXPECT_EQ(result, Result::kClosed);
}

// The thread writes the events that it has, even if their socket has no other owner any more.
TEST_F(EventWriterTest, KeepsSocketsWithEvents) {
  writer_->SetSlow();
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Write(i), Result::kWritten);
  socket_.reset();
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(Read(), i);
  uint64_t event;
  EXPECT_EQ(read(reading_.get(), &event, sizeof(event)), 0) << "the socket is closed";
}

// Each event wakes all epoll instances that watch the socket.
TEST_F(EventWriterTest, ThousandsWhoWatchASocketDelayOneWrite) {
  constexpr rlim_t kWatchers = 10'000;
  constexpr rlim_t kOthers = 200;
  constexpr uint64_t kEvents = 40;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit before = files;
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kWatchers + kOthers));
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<Fd> watchers;
  epoll_event event{.events = EPOLLIN, .data = {}};
  while (watchers.size() < kWatchers) {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.valid()) break;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, reading_.get(), &event) != 0) break;
    watchers.push_back(std::move(epoll));
  }
  for (uint64_t i = 0; i < kEvents; ++i) {
    while (Write(i) == Result::kFull) std::this_thread::yield();
    ASSERT_EQ(Read(), i);
    if (watchers.size() == kWatchers) {
      ASSERT_EQ(slow_.value(), 1U) << "after write " << i;
    }
  }
  EXPECT_EQ(writer_->is_slow(), slow_.value() != 0);
  watchers.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  if (slow_.value() == 0) GTEST_SKIP() << "too few descriptors are permitted";
}

}  // namespace
}  // namespace roci::testing
