// Accepting connections without free descriptors.
#include "control/loop/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <filesystem>
#include <vector>

#include "control/loop/socket.h"

namespace roci::control {
namespace {

roce::TimeNs CpuTime() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<roce::TimeNs>(time.tv_sec) * 1'000'000'000 +
         static_cast<roce::TimeNs>(time.tv_nsec);
}

class AcceptorTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/roci_acceptor_test.XXXXXX";
    directory_ = mkdtemp(name);
    acceptor_ = *Acceptor::Create(
        *loop_, *ListenUnix(directory_, "s", SOCK_SEQPACKET, 0600),
        [this](UniqueFd socket) {
          taken_.push_back(std::move(socket));
          if (taken_.size() == wanted_) loop_->Stop();
        },
        [this](int) { ++refused_; }, [](UniqueFd) {});
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit_), 0);
    // Stops the loop after a while.
    loop_->AddDeadline([this] { return end_; },
                       [this](roce::TimeNs) {
                         end_ = roce::kNever;
                         loop_->Stop();
                       });
  }
  void TearDown() override {
    setrlimit(RLIMIT_NOFILE, &limit_);
    acceptor_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Connect() {
    clients_.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", directory_.c_str());
    ASSERT_EQ(connect(clients_.back().get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
  }
  // Allows `free` more descriptors.
  void LeaveDescriptors(int free) {
    std::vector<UniqueFd> probes;
    for (int i = 0; i <= free; ++i) probes.emplace_back(eventfd(0, EFD_CLOEXEC));
    // All lower numbers are in use.
    const rlimit limit{static_cast<rlim_t>(probes.back().get()), limit_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  // Runs the loop until so many connections were accepted, or for 10 s.
  void RunUntilTaken(size_t count) {
    wanted_ = count;
    RunFor(10'000'000'000);
  }
  void RunFor(roce::TimeNs time) {
    end_ = MonotonicNow() + time;
    loop_->Run();
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::string directory_;
  rlimit limit_;
  roce::TimeNs end_ = roce::kNever;
  std::vector<UniqueFd> clients_;
  std::vector<UniqueFd> taken_;
  size_t wanted_ = 0;
  int refused_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, RefusesConnectionsWithoutFreeDescriptors) {
  for (int i = 0; i < 5; ++i) Connect();
  LeaveDescriptors(2);
  const roce::TimeNs before = CpuTime();
  RunFor(200'000'000);
  EXPECT_LT(CpuTime() - before, 100'000'000) << "the loop spins";
  EXPECT_EQ(taken_.size(), 2u);
  EXPECT_EQ(refused_, 3);
  char byte;
  EXPECT_EQ(recv(clients_.back().get(), &byte, 1, MSG_DONTWAIT), 0) << "closed, not left waiting";
}

TEST_F(AcceptorTest, GoesOnWhenThereAreDescriptorsAgain) {
  for (int i = 0; i < 3; ++i) Connect();
  const rlimit none{3, limit_.rlim_max};  // not even the spare one helps
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  roce::TimeNs restore_at = MonotonicNow() + 150'000'000;
  loop_->AddDeadline([&] { return restore_at; },
                     [&](roce::TimeNs) {
                       restore_at = roce::kNever;
                       EXPECT_TRUE(taken_.empty());
                       EXPECT_EQ(refused_, 0);
                       setrlimit(RLIMIT_NOFILE, &limit_);
                     });
  const roce::TimeNs before = CpuTime();
  RunUntilTaken(3);
  EXPECT_LT(CpuTime() - before, 100'000'000) << "the loop spins";
  EXPECT_EQ(taken_.size(), 3u);
}

}  // namespace
}  // namespace roci::control
