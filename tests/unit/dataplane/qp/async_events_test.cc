#include "dataplane/qp/async_events.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <span>
#include <vector>

#include "dataplane/base/async_event.h"
#include "tests/on_shard.h"

namespace roci::testing {
namespace {

using dataplane::AsyncEvents;
using dataplane::Fd;

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();

class AsyncEventsTest : public ::testing::Test {
 protected:
  AsyncEventsTest()
      : room_(Room()), events_(std::make_shared<dataplane::EventSocket>(Open(reading_), nullptr)) {
    std::signal(SIGPIPE, SIG_IGN);
  }
  // As control/loop/event_socket.h makes them.
  static Fd Open(Fd& reading) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    reading = Fd(ends[0]);
    return Fd(ends[1]);
  }
  // How many events a socket takes.
  static uint32_t Room() {
    Fd reading;
    const Fd sending = Open(reading);
    const roci_abi_async_event event{};
    uint32_t events = 0;
    while (write(sending.get(), &event, sizeof(event)) > 0) ++events;
    return events;
  }
  // The elements of the events that can be read now.
  std::vector<uint64_t> Read() {
    std::vector<uint64_t> elements;
    roci_abi_async_event event;
    while (read(reading_.get(), &event, sizeof(event)) == ssize_t{sizeof(event)}) {
      elements.push_back(event.element);
    }
    return elements;
  }
  std::vector<uint64_t> ReadAll() {
    std::vector<uint64_t> all = Read();
    while (events_.waiting(kShard)) {
      EXPECT_EQ(events_.Retry(kShard), 0u);
      const std::vector<uint64_t> more = Read();
      if (more.empty()) break;
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  const uint32_t room_;
  Fd reading_;
  AsyncEvents events_;
};

TEST_F(AsyncEventsTest, KeepsEventsInOrderWhenTheSocketIsFull) {
  const uint64_t all = room_ + AsyncEvents::kMaxWaiting;
  // Twice, so that the ring wraps.
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < all; ++i)
      ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal)) << i;
    EXPECT_TRUE(events_.waiting(kShard));
    EXPECT_FALSE(events_.Send(kShard, all, dataplane::kEventQpFatal)) << "the bound";
    const std::vector<uint64_t> read = ReadAll();
    ASSERT_EQ(read.size(), all);
    for (uint64_t i = 0; i < all; ++i) ASSERT_EQ(read[i], i);
    EXPECT_FALSE(events_.waiting(kShard));
    // Moves the start of the ring.
    for (uint64_t i = 0; i < room_ + 77; ++i) events_.Send(kShard, i, dataplane::kEventQpFatal);
    EXPECT_EQ(ReadAll().size(), room_ + 77);
  }
}

TEST_F(AsyncEventsTest, LaterEventsDoNotOvertake) {
  for (uint64_t i = 0; i <= room_; ++i)
    ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  EXPECT_EQ(Read().size(), room_);
  ASSERT_TRUE(events_.Send(kShard, room_ + 1, dataplane::kEventQpFatal));
  EXPECT_TRUE(Read().empty());
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{room_, room_ + 1}));
}

TEST_F(AsyncEventsTest, LeavesRoomForFaults) {
  uint32_t established = 0;
  while (events_.Send(kShard, 1, dataplane::kEventCommunicationEstablished)) ++established;
  EXPECT_EQ(established, room_ + AsyncEvents::kMaxWaiting / 2);
  EXPECT_TRUE(events_.Send(kShard, 2, dataplane::kEventQpFatal));
}

TEST_F(AsyncEventsTest, WithdrawsEventsOfAnObject) {
  for (uint64_t i = 0; i < room_; ++i)
    ASSERT_TRUE(events_.Send(kShard, 9, dataplane::kEventQpFatal));
  for (uint64_t i = 0; i < 300; ++i)
    ASSERT_TRUE(events_.Send(kShard, i % 3, dataplane::kEventQpFatal));
  EXPECT_EQ(events_.Withdraw(kShard, 1), 100u);
  EXPECT_EQ(Read().size(), room_);
  const std::vector<uint64_t> read = ReadAll();
  ASSERT_EQ(read.size(), 200u);
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(read[i], i % 2 * 2) << i;
}

TEST_F(AsyncEventsTest, SendsReturnedEventsBeforeLaterOnes) {
  EXPECT_EQ(events_.Return(kShard, {}, true), 0u);
  EXPECT_TRUE(events_.Send(kShard, 5, dataplane::kEventQpFatal));
  EXPECT_EQ(events_.Retry(kShard), 0u);
  EXPECT_TRUE(Read().empty()) << "held";
  const roci_abi_async_event later[] = {{3, dataplane::kEventQpFatal, 0},
                                        {4, dataplane::kEventQpFatal, 0}};
  const roci_abi_async_event first[] = {{1, dataplane::kEventQpFatal, 0},
                                        {2, dataplane::kEventQpFatal, 0}};
  EXPECT_EQ(events_.Return(kShard, later, true), 0u);
  EXPECT_TRUE(Read().empty()) << "held";
  EXPECT_EQ(events_.Return(kShard, first, false), 0u);
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(AsyncEventsTest, HasRoomForReturnedEvents) {
  while (events_.Send(kShard, 1, dataplane::kEventQpFatal)) {
  }
  const std::vector<roci_abi_async_event> returned(AsyncEvents::kMaxReturned);
  EXPECT_EQ(events_.Return(kShard, returned, true), 0u);
  EXPECT_EQ(events_.Return(kShard, std::span(returned).first(3), true), 3u) << "lost";
}

TEST_F(AsyncEventsTest, ReportsLostEventsOnReturn) {
  EXPECT_EQ(events_.Return(kShard, {}, true), 0u);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  reading_.Reset();
  EXPECT_EQ(events_.Return(kShard, {}, false), 3u);
}

TEST_F(AsyncEventsTest, DropsEventsIfTheSocketHasNoReader) {
  for (uint64_t i = 0; i < room_ + 5; ++i)
    ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  reading_.Reset();
  EXPECT_EQ(events_.Retry(kShard), 5u) << "lost";
  EXPECT_FALSE(events_.waiting(kShard));
  EXPECT_EQ(events_.Retry(kShard), 0u);
  EXPECT_FALSE(events_.Send(kShard, 1, dataplane::kEventQpFatal));
}

}  // namespace
}  // namespace roci::testing
