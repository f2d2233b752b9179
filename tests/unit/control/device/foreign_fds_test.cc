// The order in which the descriptor broker gets the requests of several users.
#include "control/device/foreign_fds.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

namespace roci::control {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

TEST(TurnQueueTest, UsersTakeTurnsAndTheirRequestsStayInOrder) {
  TurnQueue<int> queue;
  for (const int request : {10, 11, 12, 13}) queue.Push(1, request);
  queue.Push(2, 20);
  queue.Push(3, 30);
  queue.Push(2, 21);
  std::vector<int> order;
  for (; !queue.empty(); queue.Pop()) order.push_back(queue.Front());
  EXPECT_EQ(order, (std::vector<int>{10, 20, 30, 11, 21, 12, 13}));
}

// A socket stands for the broker, which is busy.
TEST(ForeignFdsTest, AFloodOfOneUserDelaysAnotherByFewRequests) {
  constexpr int kFlood = 400;
  constexpr int kFew = 16;
  SharedQuotas quotas{.sessions = Quota(10),
                      .descriptors = Quota(10'000),
                      .ring_memory = Quota(1000),
                      .ring_mappings = Quota(20),
                      .app_mappings = Quota(7)};
  Users users(quotas, 30);
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  LimitBrokerQueue(ends[0]);
  FdBroker broker;
  broker.socket.Reset(ends[0]);
  const UniqueFd far(ends[1]);
  auto fds = ForeignFds::Create(**loop, users, std::move(broker));
  ASSERT_TRUE(fds.ok());
  const std::shared_ptr<User> alice = users.Get(kAlice), bob = users.Get(kBob);
  for (int i = 0; i < kFlood; ++i) (*fds)->Close(UniqueFd(eventfd(0, EFD_CLOEXEC)), alice);
  (*fds)->Close(UniqueFd(eventfd(0, EFD_CLOEXEC)), bob);
  const auto bobs = reinterpret_cast<uintptr_t>(bob.get());
  // Reads one request in each round of the loop, which then sends more.
  constexpr int kMostRounds = 100'000;
  int before = 0, rounds = 0;
  bool found = false;
  (*loop)->AddDeadline([] { return roce::TimeNs{0}; },
                       [&](roce::TimeNs) {
                         BrokerRequest request;
                         if (recv(far.get(), &request, sizeof(request), 0) > 0) {
                           found = request.account == bobs;
                           before += found ? 0 : 1;
                         }
                         if (found || ++rounds == kMostRounds) (*loop)->Stop();
                       });
  (*loop)->Run();
  EXPECT_TRUE(found);
  EXPECT_LE(before, kFew);
}

}  // namespace
}  // namespace roci::control
