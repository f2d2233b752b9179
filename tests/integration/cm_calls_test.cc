// librdmacm's calls to the daemon behave like those to the kernel: errno after failures that
// librdmacm undoes with further calls, signals, and descriptors.
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include "gtest/gtest.h"

namespace roci::testing {
namespace {

using AddressInfo = std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)>;

AddressInfo Resolve(const char* address, int flags) {
  rdma_addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_getaddrinfo(address, "7471", &hints, &found), 0) << strerror(errno);
  return {found, rdma_freeaddrinfo};
}

ibv_qp_init_attr SmallQueues() {
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  return attributes;
}

// errno of rdma_create_ep, which destroys its objects before it returns the failure.
int EndpointErrno(const char* address, int flags, ibv_qp_init_attr* attributes) {
  const AddressInfo place = Resolve(address, flags);
  if (place == nullptr) return -1;
  rdma_cm_id* id = nullptr;
  errno = 0;
  if (rdma_create_ep(&id, place.get(), nullptr, attributes) == 0) {
    rdma_destroy_ep(id);
    return 0;
  }
  return errno;
}

TEST(CmCalls, ErrnoIsThatOfTheFailure) {
  ibv_qp_init_attr attributes = SmallQueues();
  EXPECT_EQ(EndpointErrno("10.99.0.99", 0, &attributes), ETIMEDOUT);
  EXPECT_EQ(EndpointErrno("192.0.2.1", 0, &attributes), ENETUNREACH);
  EXPECT_EQ(EndpointErrno("192.0.2.1", RAI_PASSIVE, nullptr), EADDRNOTAVAIL);
  attributes.cap.max_send_wr = 100'000'000;
  EXPECT_EQ(EndpointErrno("10.99.0.2", 0, &attributes), EINVAL);
}

TEST(CmCalls, SuccessLeavesErrno) {
  errno = ERANGE;
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  rdma_cm_id* id = nullptr;
  errno = ERANGE;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(errno, ERANGE);
  rdma_destroy_event_channel(channel);
}

TEST(CmCalls, FailingPostSetsErrno) {
  const AddressInfo place = Resolve("10.99.0.2", 0);
  ASSERT_NE(place, nullptr);
  ibv_qp_init_attr attributes = SmallQueues();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, place.get(), nullptr, &attributes), 0) << strerror(errno);
  ibv_sge sges[64] = {};
  ibv_recv_wr receive = {};
  receive.sg_list = sges;
  receive.num_sge = 64;
  ibv_recv_wr* bad = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_recv(id->qp, &receive, &bad), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  ibv_send_wr send = {};
  ibv_send_wr* bad_send = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_post_send(id->qp, &send, &bad_send), EINVAL);  // not yet connected
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_ep(id);
}

volatile sig_atomic_t g_alarms = 0;

// Raises SIGALRM every 100 ms until the test ends.
class Alarms {
 public:
  explicit Alarms(int flags) {
    g_alarms = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { g_alarms = g_alarms + 1; };
    action.sa_flags = flags;
    sigaction(SIGALRM, &action, &before_);
    const itimerval often = {{0, 100'000}, {0, 100'000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

 private:
  struct sigaction before_ = {};
};

// Starts resolving an unused address, which takes `timeout_ms`, or less if the daemon has tried the
// same address before.
rdma_cm_id* BeginToResolve(rdma_event_channel* channel, const char* address, int timeout_ms) {
  const AddressInfo place = Resolve(address, 0);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, place->ai_dst_addr, timeout_ms), 0);
  return id;
}

TEST(CmCalls, SignalsThatRestartDoNotEndTheWait) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  rdma_cm_id* id = BeginToResolve(channel, "10.99.0.98", 1000);
  rdma_cm_event* event = nullptr;
  {
    const Alarms alarms(SA_RESTART);
    ASSERT_EQ(rdma_get_cm_event(channel, &event), 0) << strerror(errno);
    EXPECT_GT(g_alarms, 0);
  }
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_ERROR);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

TEST(CmCalls, OtherSignalsEndTheWait) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  rdma_cm_id* id = BeginToResolve(channel, "10.99.0.97", 20'000);
  rdma_cm_event* event = nullptr;
  {
    const Alarms alarms(0);
    EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
    EXPECT_EQ(errno, EINTR);
  }
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

long CountDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  long count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(CmCalls, ChannelsReleaseTheirTwoDescriptors) {
  constexpr int kChannels = 20;
  rdma_event_channel* channels[kChannels];
  // librdmacm's own descriptors exist after the first.
  rdma_destroy_event_channel(rdma_create_event_channel());
  const long before = CountDescriptors();
  for (rdma_event_channel*& channel : channels) channel = rdma_create_event_channel();
  EXPECT_EQ(CountDescriptors(), before + 2 * kChannels);
  std::for_each(channels, channels + kChannels, rdma_destroy_event_channel);
  EXPECT_EQ(CountDescriptors(), before);
}

}  // namespace
}  // namespace roci::testing
