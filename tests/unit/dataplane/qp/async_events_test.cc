#include "dataplane/qp/async_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "dataplane/base/async_event.h"
#include "tests/on_shard.h"

namespace roci::testing {
namespace {

using dataplane::AsyncEvents;
using dataplane::Fd;

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();

constexpr uint32_t kPipe = 65536 / sizeof(roci_abi_async_event);

class AsyncEventsTest : public ::testing::Test {
 protected:
  AsyncEventsTest() : events_(OpenPipe()) { std::signal(SIGPIPE, SIG_IGN); }
  Fd OpenPipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    reading_ = Fd(ends[0]);
    return Fd(ends[1]);
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
    while (events_.waiting()) {
      EXPECT_EQ(events_.Retry(kShard), 0u);
      const std::vector<uint64_t> more = Read();
      if (more.empty()) break;
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  Fd reading_;
  AsyncEvents events_;
};

TEST_F(AsyncEventsTest, KeepsEventsInOrderWhenThePipeIsFull) {
  constexpr uint64_t kAll = kPipe + AsyncEvents::kMaxWaiting;
  // Twice, so that the ring wraps.
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < kAll; ++i)
      ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal)) << i;
    EXPECT_TRUE(events_.waiting());
    EXPECT_FALSE(events_.Send(kShard, kAll, dataplane::kEventQpFatal)) << "the bound";
    const std::vector<uint64_t> read = ReadAll();
    ASSERT_EQ(read.size(), kAll);
    for (uint64_t i = 0; i < kAll; ++i) ASSERT_EQ(read[i], i);
    EXPECT_FALSE(events_.waiting());
    // Moves the start of the ring.
    for (uint64_t i = 0; i < kPipe + 77; ++i) events_.Send(kShard, i, dataplane::kEventQpFatal);
    EXPECT_EQ(ReadAll().size(), kPipe + 77);
  }
}

TEST_F(AsyncEventsTest, LaterEventsDoNotOvertake) {
  for (uint64_t i = 0; i <= kPipe; ++i)
    ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  EXPECT_EQ(Read().size(), kPipe);
  ASSERT_TRUE(events_.Send(kShard, kPipe + 1, dataplane::kEventQpFatal));
  EXPECT_TRUE(Read().empty());
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{kPipe, kPipe + 1}));
}

TEST_F(AsyncEventsTest, LeavesRoomForFaults) {
  uint32_t established = 0;
  while (events_.Send(kShard, 1, dataplane::kEventCommunicationEstablished)) ++established;
  EXPECT_EQ(established, kPipe + AsyncEvents::kMaxWaiting / 2);
  EXPECT_TRUE(events_.Send(kShard, 2, dataplane::kEventQpFatal));
}

TEST_F(AsyncEventsTest, WithdrawsEventsOfAnObjectAndWritesNoneWhileHeld) {
  for (uint64_t i = 0; i < kPipe; ++i)
    ASSERT_TRUE(events_.Send(kShard, 9, dataplane::kEventQpFatal));
  for (uint64_t i = 0; i < 300; ++i)
    ASSERT_TRUE(events_.Send(kShard, i % 3, dataplane::kEventQpFatal));
  EXPECT_EQ(events_.Hold(kShard, 1), 100u);
  EXPECT_EQ(Read().size(), kPipe);
  EXPECT_TRUE(events_.Send(kShard, 7, dataplane::kEventQpFatal));
  EXPECT_EQ(events_.Retry(kShard), 0u);
  EXPECT_TRUE(Read().empty());
  EXPECT_EQ(events_.Release(kShard), 0u);
  const std::vector<uint64_t> read = ReadAll();
  ASSERT_EQ(read.size(), 201u);
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(read[i], i % 2 * 2) << i;
  EXPECT_EQ(read.back(), 7u);
}

TEST_F(AsyncEventsTest, HoldsEventsAlsoWithAnEmptyBacklog) {
  EXPECT_EQ(events_.Hold(kShard, 1), 0u);
  EXPECT_TRUE(events_.Send(kShard, 5, dataplane::kEventQpFatal));
  EXPECT_TRUE(Read().empty());
  EXPECT_EQ(events_.Release(kShard), 0u);
  EXPECT_EQ(Read(), std::vector<uint64_t>{5});
}

TEST_F(AsyncEventsTest, ReportsLostEventsOnRelease) {
  events_.Hold(kShard, 1);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  reading_.Reset();
  EXPECT_EQ(events_.Release(kShard), 3u);
}

TEST_F(AsyncEventsTest, DropsEventsIfThePipeHasNoReader) {
  for (uint64_t i = 0; i < kPipe + 5; ++i)
    ASSERT_TRUE(events_.Send(kShard, i, dataplane::kEventQpFatal));
  reading_.Reset();
  EXPECT_EQ(events_.Retry(kShard), 5u) << "lost";
  EXPECT_FALSE(events_.waiting());
  EXPECT_EQ(events_.Retry(kShard), 0u);
  EXPECT_FALSE(events_.Send(kShard, 1, dataplane::kEventQpFatal));
}

}  // namespace
}  // namespace roci::testing
