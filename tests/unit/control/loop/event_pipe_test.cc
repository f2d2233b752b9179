// Removing unread events from an event pipe.
#include "control/loop/event_pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace roci::control {
namespace {

class EventPipeTest : public testing::Test {
 protected:
  EventPipeTest() { EXPECT_TRUE(EventPipe::Create(pipe, reading).ok()); }
  void Write(uint64_t element) {
    EXPECT_EQ(write(pipe.writing.get(), &element, sizeof(element)),
              static_cast<ssize_t>(sizeof(element)));
  }
  bool IsReadable() {
    pollfd wait = {reading.get(), POLLIN, 0};
    return poll(&wait, 1, 0) == 1 && (wait.revents & POLLIN) != 0;
  }
  std::vector<uint64_t> ReadAll() {
    std::vector<uint64_t> events;
    uint64_t element = 0;
    while (IsReadable() && read(reading.get(), &element, sizeof(element)) == sizeof(element)) {
      events.push_back(element);
    }
    return events;
  }

  EventPipe pipe;
  UniqueFd reading;
};

TEST_F(EventPipeTest, RemovesUnreadEvents) {
  for (const uint64_t element : {7, 1, 2, 7, 3, 7, 7}) Write(element);
  uint64_t first = 0;
  ASSERT_EQ(read(reading.get(), &first, sizeof(first)), static_cast<ssize_t>(sizeof(first)));
  EXPECT_EQ(first, 7u) << "read, so it stays read";
  EXPECT_EQ(TakeBackEvents(pipe, 7, 8), 3u);
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{1, 2, 3})) << "the others keep their order";
  EXPECT_EQ(TakeBackEvents(pipe, 7, 8), 0u);
}

TEST_F(EventPipeTest, LeavesAnEmptyPipeUnreadable) {
  Write(7);
  EXPECT_TRUE(IsReadable());
  EXPECT_EQ(TakeBackEvents(pipe, 7, 8), 1u);
  EXPECT_FALSE(IsReadable());
}

TEST_F(EventPipeTest, TakesLongEventsWhole) {
  struct {
    uint64_t element;
    uint64_t type;
  } event = {7, 1};
  ASSERT_EQ(write(pipe.writing.get(), &event, sizeof(event)), static_cast<ssize_t>(sizeof(event)));
  event = {1, 7};  // another object's event whose type looks like the element
  ASSERT_EQ(write(pipe.writing.get(), &event, sizeof(event)), static_cast<ssize_t>(sizeof(event)));
  EXPECT_EQ(TakeBackEvents(pipe, 7, sizeof(event)), 1u);
  EXPECT_EQ(ReadAll(), (std::vector<uint64_t>{1, 7}));
}

TEST_F(EventPipeTest, NeverBlocksWithAnyFlagsOfTheProgram) {
  EXPECT_EQ(fcntl(reading.get(), F_GETFL) & O_NONBLOCK, 0) << "the program's end blocks by itself";
  EXPECT_EQ(TakeBackEvents(pipe, 7, 8), 0u);
}

TEST_F(EventPipeTest, LosesNothingOfAFullPipe) {
  std::vector<uint64_t> expected;
  uint32_t unwanted = 0;
  uint64_t element = 0;
  while (write(pipe.writing.get(), &element, sizeof(element)) > 0) {
    if (element % 5 == 0) {
      ++unwanted;
    } else {
      expected.push_back(element);
    }
    element = element % 5 == 4 ? 0 : element + 1;
  }
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_EQ(TakeBackEvents(pipe, 0, 8), unwanted);
  EXPECT_EQ(ReadAll(), expected);
}

TEST_F(EventPipeTest, EndsForTheAppWithTheDaemon) {
  pipe = EventPipe();
  uint64_t element = 0;
  EXPECT_EQ(read(reading.get(), &element, sizeof(element)), 0);
}

// A program that reads an event in parts leaves the rest of it in the pipe, which must stay
// unchanged.
TEST_F(EventPipeTest, KeepsHalfAnEvent) {
  for (const uint64_t element : {5, 7, 9}) Write(element);
  char part[3];
  ASSERT_EQ(read(reading.get(), part, sizeof(part)), 3);
  TakeBackEvents(pipe, 9, sizeof(uint64_t));
  char rest[64];
  const ssize_t left = read(reading.get(), rest, sizeof(rest));
  EXPECT_GE(left, 5);
  EXPECT_LE(left, 3 * 8 - 3);
}

}  // namespace
}  // namespace roci::control
