// Requests that are repeated while the daemon resolves a peer's address.
#include "verbs_provider/session/path_wait.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace roci::provider {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class PathWaitTest : public testing::Test {
 public:
  PathWaitTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    daemon_end_ = ends[1];
    session_->state = &state_;
    session_->bells = Doorbells(page_.get(), nullptr);
    EXPECT_EQ(session_->client.Adopt(ends[0], &state_), 0);
  }
  ~PathWaitTest() override {
    session_->client.Close();
    if (daemon_.joinable()) daemon_.join();
    close(daemon_end_);
  }

 protected:
  // Answers requests with the results of `answer`: errno and number of the wait.
  struct Answer {
    int error;
    uint32_t wait;
  };
  void Serve(const std::function<Answer(const roci_abi_request&)>& answer) {
    daemon_ = std::thread([this, answer] {
      roci_abi_create_ah_request request;
      while (recv(daemon_end_, &request, sizeof(request), 0) == ssize_t{sizeof(request)}) {
        asked_.push_back(request.head.wait);
        const Answer result = answer(request.head);
        roci_abi_handle_response response = {};
        response.head.serial = request.head.serial;
        response.head.error = result.error;
        response.head.wait = result.wait;
        response.handle = 5;
        send(daemon_end_, &response, sizeof(response), MSG_NOSIGNAL);
      }
    });
  }
  int CreateAh() {
    roci_abi_create_ah_request request = {};
    roci_abi_handle_response response = {};
    return CallWithPath(session_.get(), ROCI_ABI_CREATE_AH, &request, &response);
  }
  void ChangePaths() { std::atomic_ref<uint32_t>(page_->paths).fetch_add(1); }

  std::unique_ptr<roci_abi_doorbells> page_ = std::make_unique<roci_abi_doorbells>();
  std::unique_ptr<VerbsSession> session_ = std::make_unique<VerbsSession>();
  std::atomic<uint32_t> state_{kSessionDead};
  int daemon_end_ = -1;
  std::thread daemon_;
  std::vector<uint32_t> asked_;  // numbers in the requests
};

TEST_F(PathWaitTest, RepeatsTheRequestWithItsNumber) {
  Serve([&](const roci_abi_request& request) {
    return request.wait == 0 ? Answer{EINPROGRESS, 41}
                             : Answer{asked_.size() < 4 ? EINPROGRESS : 0, 42};
  });
  errno = 0;
  EXPECT_EQ(CreateAh(), 0);
  EXPECT_EQ(errno, 0) << "the calls in between are not the program's";
  EXPECT_EQ(asked_, (std::vector<uint32_t>{0, 41, 42, 42}));
}

TEST_F(PathWaitTest, ReportsTheLastError) {
  Serve([&](const roci_abi_request&) {
    return asked_.size() < 2 ? Answer{EINPROGRESS, 1} : Answer{ETIMEDOUT, 0};
  });
  EXPECT_EQ(CreateAh(), ETIMEDOUT);
  EXPECT_EQ(errno, ETIMEDOUT);
}

// A fault that somebody has asked the daemon for.
TEST_F(PathWaitTest, AnErrorWithoutANumberIsFinal) {
  Serve([](const roci_abi_request&) { return Answer{EINPROGRESS, 0}; });
  EXPECT_EQ(CreateAh(), EINPROGRESS);
}

TEST_F(PathWaitTest, AChangeOfPathsEndsThePause) {
  constexpr int kChanges = 50;
  std::atomic<bool> is_known{false};
  Serve([&](const roci_abi_request&) { return is_known ? Answer{0, 0} : Answer{EINPROGRESS, 1}; });
  std::thread network([&] {
    for (int i = 0; i < kChanges; ++i) {
      std::this_thread::sleep_for(milliseconds(12));
      ChangePaths();
    }
    is_known = true;
    ChangePaths();
  });
  EXPECT_EQ(CreateAh(), 0);
  EXPECT_GT(asked_.size(), size_t{kChanges / 2});
  network.join();
}

TEST_F(PathWaitTest, AsksRarelyWhileNothingChanges) {
  const auto begin = Clock::now();
  Serve([&](const roci_abi_request&) {
    return Clock::now() - begin > milliseconds(1000) ? Answer{ETIMEDOUT, 0}
                                                     : Answer{EINPROGRESS, 1};
  });
  EXPECT_EQ(CreateAh(), ETIMEDOUT);
  EXPECT_LT(asked_.size(), 15u);
}

TEST_F(PathWaitTest, OtherThreadsUseTheSessionMeanwhile) {
  std::atomic<bool> is_known{false};
  Serve([&](const roci_abi_request& request) {
    return request.command != ROCI_ABI_CREATE_AH || is_known ? Answer{0, 0}
                                                             : Answer{EINPROGRESS, 1};
  });
  std::thread asking([&] { EXPECT_EQ(CreateAh(), 0); });
  for (int i = 0; i < 100; ++i) {
    roci_abi_create_ah_request request = {};
    roci_abi_handle_response response = {};
    EXPECT_EQ(session_->client.Call(ROCI_ABI_DESTROY_AH, &request, &response), 0);
  }
  is_known = true;
  asking.join();
}

TEST_F(PathWaitTest, TheEndOfTheSessionEndsTheWait) {
  Serve([&](const roci_abi_request&) { return Answer{EINPROGRESS, 1}; });
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(50));
    session_->client.MarkDead();
  });
  const auto begin = Clock::now();
  EXPECT_EQ(CreateAh(), EIO);
  EXPECT_LT(Clock::now() - begin, milliseconds(1000));
  end.join();
}

}  // namespace
}  // namespace roci::provider
