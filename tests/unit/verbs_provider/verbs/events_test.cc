// Returning the events of other objects to a daemon that refuses them, and from a program that
// cannot send for a while.
#include "verbs_provider/verbs/events.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "verbs_provider/session/session.h"

namespace roci::provider {
namespace {

// Runs `work` on a thread whose sendmsg(2) fails with ENOBUFS, `failures` times. False: the kernel
// does not allow it.
bool RunWithoutBuffers(int failures, const std::function<void()>& work) {
  std::atomic<int> listener{-2};
  std::thread thread([&] {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(filter), filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    listener = static_cast<int>(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    if (listener >= 0) work();
  });
  while (listener == -2) usleep(100);
  pollfd called = {listener, POLLIN, 0};
  // POLLHUP: the thread has ended.
  while (listener >= 0 && poll(&called, 1, -1) == 1 && (called.revents & POLLIN) != 0) {
    seccomp_notif call = {};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
    seccomp_notif_resp answer = {};
    answer.id = call.id;
    if (failures-- > 0) {
      answer.error = -ENOBUFS;
    } else {
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    EXPECT_EQ(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer), 0) << strerror(errno);
  }
  thread.join();
  if (listener >= 0) close(listener);
  return listener >= 0;
}

// A session whose daemon answers each request with the next of `errors`, then with 0.
class EventsTest : public ::testing::Test {
 protected:
  EventsTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    session_.state = &state_;
    EXPECT_EQ(session_.client.Adopt(ends[0], &state_), 0);
    daemon_ = std::thread([this, fd = ends[1]] { Serve(fd); });
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    session_.async_file.Hold(ends[0]);
    sender_ = ends[1];
  }
  void TearDown() override {
    session_.client.Close();
    daemon_.join();
    session_.async_file.Close();
    close(sender_);
  }

  void SendEvent(const int& element) {
    roci_abi_async_event event = {};
    event.element = reinterpret_cast<uintptr_t>(&element);
    EXPECT_EQ(send(sender_, &event, sizeof(event), 0), ssize_t{sizeof(event)});
  }
  // One event of a destroyed object and one of another are unread. Returns how many events of the
  // destroyed one the program has read.
  uint32_t Remove() {
    SendEvent(destroyed_);
    SendEvent(other_);
    EventRemoval removal(&session_);
    return removal.RemoveAsyncEvents(&destroyed_, 3);
  }
  void ExpectBothRequests() {
    ASSERT_EQ(requests_.size(), 2u);
    EXPECT_EQ(requests_[0].flags, ROCI_ABI_RETURN_HOLD);
    EXPECT_EQ(requests_[0].count, 0u);
    EXPECT_EQ(requests_[1].flags, 0u);
    ASSERT_EQ(requests_[1].count, 1u);
    EXPECT_EQ(requests_[1].events[0].element, reinterpret_cast<uintptr_t>(&other_));
  }

  std::vector<int> errors_;                               // set before the first request
  std::vector<roci_abi_return_events_request> requests_;  // that were not refused
  VerbsSession session_;
  const int destroyed_ = 0;
  const int other_ = 0;

 private:
  void Serve(int fd) {
    roci_abi_return_events_request request;
    for (size_t i = 0; recv(fd, &request, sizeof(request), 0) == ssize_t{sizeof(request)}; ++i) {
      roci_abi_plain_response response = {};
      response.head.serial = request.head.serial;
      response.head.error = i < errors_.size() ? errors_[i] : 0;
      if (response.head.error == 0) requests_.push_back(request);
      EXPECT_EQ(send(fd, &response, sizeof(response), MSG_NOSIGNAL), ssize_t{sizeof(response)});
    }
    close(fd);
  }

  std::atomic<uint32_t> state_{kSessionDead};
  std::thread daemon_;
  int sender_ = -1;
};

TEST_F(EventsTest, OfOtherObjectsAreReturned) {
  EXPECT_EQ(Remove(), 2u);
  ExpectBothRequests();
  EXPECT_TRUE(session_.alive());
}

TEST_F(EventsTest, AreReturnedToADaemonThatLacksMemoryForAWhile) {
  errors_ = {ENOMEM, ENOMEM, 0, ENOMEM, ENOMEM, ENOMEM, 0};
  EXPECT_EQ(Remove(), 2u);
  ExpectBothRequests();
  EXPECT_TRUE(session_.alive());
}

TEST_F(EventsTest, RefusalsDoNotEndTheSession) {
  errors_ = {ENOENT, ENOENT};
  EXPECT_EQ(Remove(), 2u);
  EXPECT_TRUE(session_.alive());
  EXPECT_TRUE(requests_.empty());
  errors_.assign(1000, ENOMEM);
  EXPECT_EQ(Remove(), 2u);
  EXPECT_TRUE(session_.alive());
  EXPECT_TRUE(requests_.empty());
}

TEST_F(EventsTest, AreReturnedAfterAShortageOfBuffers) {
  uint32_t read = 0;
  if (!RunWithoutBuffers(5, [&] { read = Remove(); })) GTEST_SKIP() << strerror(errno);
  EXPECT_EQ(read, 2u);
  ExpectBothRequests();
  EXPECT_TRUE(session_.alive());
}

TEST_F(EventsTest, ThatCannotBeReturnedEndTheSession) {
  uint32_t read = 0;
  if (!RunWithoutBuffers(100'000, [&] { read = Remove(); })) GTEST_SKIP() << strerror(errno);
  EXPECT_EQ(read, 2u);
  EXPECT_TRUE(requests_.empty());
  EXPECT_FALSE(session_.alive());
}

}  // namespace
}  // namespace roci::provider
