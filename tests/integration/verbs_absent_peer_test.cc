// Calls that wait for a peer that does not answer: other calls of their context do not wait, and
// fork() does not either.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The daemon gives a peer up after 3.15 s.
constexpr milliseconds kPatience(3150);
constexpr milliseconds kAtOnce(500);

// Processor time of this process.
milliseconds UsedTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto in_ms = [](const timeval& time) {
    return milliseconds(time.tv_sec * 1000 + time.tv_usec / 1000);
  };
  return in_ms(usage.ru_utime) + in_ms(usage.ru_stime);
}

class AbsentPeerTest : public ::testing::Test {
 protected:
  // Address `host` in the network of the device's GID.
  ibv_ah_attr At(uint8_t host) const {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = static_cast<uint8_t>(device_.gid_index);
    attr.grh.hop_limit = 64;
    attr.grh.dgid = device_.gid;
    attr.grh.dgid.raw[15] = host;
    return attr;
  }
  // The errno of an address handle.
  int MakeAh(uint8_t host) {
    ibv_ah_attr attr = At(host);
    ibv_ah* ah = ibv_create_ah(device_.pd, &attr);
    if (ah == nullptr) return errno;
    return ibv_destroy_ah(ah);
  }
  // Of an INIT queue pair.
  int ToRtr(ibv_qp* qp, const ibv_ah_attr& peer) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 17;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr = peer;
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  // Calls that make, change and destroy objects of the context.
  void UseContext() {
    std::vector<char> memory(4096);
    for (int i = 0; i < 100; ++i) {
      ibv_mr* mr = ibv_reg_mr(device_.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
      ASSERT_NE(mr, nullptr) << errno;
      ASSERT_EQ(ibv_dereg_mr(mr), 0);
    }
    for (int i = 0; i < 10; ++i) {
      ibv_cq* cq = ibv_create_cq(device_.context, 16, nullptr, nullptr, 0);
      ASSERT_NE(cq, nullptr) << errno;
      ASSERT_EQ(ibv_resize_cq(cq, 64), 0);
      ASSERT_EQ(ibv_destroy_cq(cq), 0);
    }
  }
  // A child that ends at once.
  static void Fork() {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  // Uses the context while `call` waits for an absent peer.
  void ExpectOthersServedDuring(const std::function<int()>& call) {
    std::atomic<bool> has_ended{false};
    int error = 0;
    const auto begin = Clock::now();
    std::thread caller([&] {
      error = call();
      has_ended = true;
    });
    std::this_thread::sleep_for(milliseconds(100));
    auto from = Clock::now();
    UseContext();
    EXPECT_LT(Clock::now() - from, kAtOnce) << "calls";
    from = Clock::now();
    Fork();
    EXPECT_LT(Clock::now() - from, kAtOnce) << "fork()";
    EXPECT_FALSE(has_ended) << "the call has not waited";
    caller.join();
    EXPECT_EQ(error, ETIMEDOUT);
    EXPECT_GE(Clock::now() - begin, kPatience - milliseconds(50));
    EXPECT_LT(Clock::now() - begin, 2 * kPatience);
  }

  OpenDevice device_{"roci0"};
};

TEST_F(AbsentPeerTest, AnAddressHandleDelaysNoOtherCall) {
  ExpectOthersServedDuring([&] { return MakeAh(201); });
}

TEST_F(AbsentPeerTest, ATransitionToRtrDelaysNoOtherCall) {
  Endpoint end(device_);
  ASSERT_EQ(end.ToInit(), 0);
  ExpectOthersServedDuring([&] { return ToRtr(end.qp, At(202)); });
  EXPECT_EQ(ToRtr(end.qp, At(2)), 0) << "the queue pair is in INIT as before";
  EXPECT_EQ(ToRtr(end.qp, At(2)), EINVAL) << "the transition was made once";
}

TEST_F(AbsentPeerTest, ThreadsWaitForSeveralPeersAtOnceAndAsleep) {
  constexpr int kThreads = 12;
  std::vector<std::thread> threads;
  std::atomic<int> timed_out{0};
  const auto begin = Clock::now();
  const milliseconds used = UsedTime();
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (MakeAh(static_cast<uint8_t>(210 + i)) == ETIMEDOUT) ++timed_out;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timed_out, kThreads);
  EXPECT_LT(Clock::now() - begin, 2 * kPatience);
  EXPECT_LT(UsedTime() - used, milliseconds(400));
}

// Each of two threads learns that the peer has not answered it.
TEST_F(AbsentPeerTest, ThreadsMayWaitForTheSamePeer) {
  const auto begin = Clock::now();
  int errors[2] = {};
  std::thread first([&] { errors[0] = MakeAh(230); });
  std::this_thread::sleep_for(milliseconds(300));
  std::thread second([&] { errors[1] = MakeAh(230); });
  first.join();
  second.join();
  EXPECT_EQ(errors[0], ETIMEDOUT);
  EXPECT_EQ(errors[1], ETIMEDOUT);
  EXPECT_LT(Clock::now() - begin, 2 * kPatience);
}

// Handlers of signals end the pauses early, and the call may be cancelled only as a whole.
TEST_F(AbsentPeerTest, SignalsDoNotEndTheWait) {
  struct sigaction before {};
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  const auto begin = Clock::now();
  EXPECT_EQ(MakeAh(231), ETIMEDOUT);
  EXPECT_GE(Clock::now() - begin, kPatience - milliseconds(50));
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_F(AbsentPeerTest, AChildOfAForkMeanwhileCanUseADevice) {
  std::thread caller([&] { EXPECT_EQ(MakeAh(232), ETIMEDOUT); });
  std::this_thread::sleep_for(milliseconds(100));
  const pid_t child = fork();
  if (child == 0) {
    const OpenDevice own("roci0");
    _exit(own.pd != nullptr ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  caller.join();
}

// A call that succeeds leaves errno alone, also if it has asked more than once.
TEST_F(AbsentPeerTest, APresentPeerIsFoundAtOnce) {
  ibv_gid unused = {};
  ASSERT_EQ(ibv_query_gid(DeviceOne().context, 1, 0, &unused), 0);
  ibv_ah_attr attr = At(0);
  attr.grh.sgid_index = 0;  // fe80::/64, which other tests hardly use
  attr.grh.dgid = unused;
  const auto begin = Clock::now();
  errno = 0;
  ibv_ah* ah = ibv_create_ah(device_.pd, &attr);
  ASSERT_NE(ah, nullptr) << errno;
  EXPECT_EQ(errno, 0);
  EXPECT_LT(Clock::now() - begin, kAtOnce);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace roci::testing
