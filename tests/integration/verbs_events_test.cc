// Completion channels, asynchronous events and resizing.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

bool IsReadable(int fd, int timeout_ms) {
  pollfd wait = {fd, POLLIN, 0};
  return poll(&wait, 1, timeout_ms) == 1 && (wait.revents & POLLIN) != 0;
}

class VerbsEvents : public ::testing::Test {
 protected:
  static EndpointOptions WithChannel() {
    EndpointOptions options;
    options.with_channel = true;
    return options;
  }
  void SendOne(unsigned flags = IBV_SEND_SIGNALED) {
    ASSERT_EQ(pair.far.PostRecv(there.Sge(0, 64)), 0);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_SEND, here.Sge(0, 64), flags), 0);
    pair.near.ExpectSuccess();
  }
  // Takes one event of the far end and acknowledges it.
  void ExpectEvent() {
    ASSERT_TRUE(IsReadable(pair.far.channel->fd, kPatience_ms));
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), 0);
    EXPECT_EQ(cq, pair.far.cq);
    EXPECT_EQ(cq_context, &pair.far);
    ibv_ack_cq_events(cq, 1);
  }
  bool HasEvent(int timeout_ms) { return IsReadable(pair.far.channel->fd, timeout_ms); }

  Pair pair{WithChannel()};
  Buffer here{pair.near_device, 4096, 1};
  Buffer there{pair.far_device, 4096, 2};
};

TEST_F(VerbsEvents, AreSentOncePerRequest) {
  SendOne();
  EXPECT_FALSE(HasEvent(20)) << "no notification was requested";
  pair.far.ExpectSuccess(2);
  ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
  SendOne();
  ExpectEvent();
  SendOne();
  EXPECT_FALSE(HasEvent(20)) << "one request, one event";
  pair.far.ExpectSuccess(2);
  pair.far.ExpectSuccess(2);
}

TEST_F(VerbsEvents, WakeABlockedThread) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
    std::thread waiter([this] {
      ibv_cq* cq = nullptr;
      void* cq_context = nullptr;
      EXPECT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), 0);
      ibv_ack_cq_events(cq, 1);
    });
    SendOne();
    waiter.join();
    pair.far.ExpectSuccess(2);
  }
}

TEST_F(VerbsEvents, WaitForSolicitedCompletions) {
  ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 1), 0);
  SendOne();
  EXPECT_FALSE(HasEvent(20));
  SendOne(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  ExpectEvent();
  ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 1), 0);
  ASSERT_EQ(pair.far.PostRecv(there.Sge(0, 64)), 0);
  ASSERT_EQ(pair.far.ToState(IBV_QPS_ERR), 0);
  ExpectEvent();  // errors count as solicited
}

TEST_F(VerbsEvents, DoNotBlockOnANonblockingDescriptor) {
  const int fd = pair.far.channel->fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
  SendOne();
  ExpectEvent();
}

TEST_F(VerbsEvents, CanBeRequestedWithoutAChannelAndNotByAnotherHandle) {
  ibv_cq* cq = ibv_create_cq(pair.far_device.context, 8, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
  EXPECT_EQ(ibv_req_notify_cq(cq, 1), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  const uint32_t handle = pair.far.cq->handle;
  pair.far.cq->handle = ~handle;
  EXPECT_EQ(ibv_req_notify_cq(pair.far.cq, 0), EINVAL);
  pair.far.cq->handle = handle;
  EXPECT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
}

// A program need not read every event. It cannot acknowledge events that it has not read, so the CQ
// must be destroyed without them, and leave none in the channel.
TEST_F(VerbsEvents, ThatWereNotReadDoNotDelayDestruction) {
  ibv_comp_channel* channel = ibv_create_comp_channel(pair.far_device.context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* doomed = ibv_create_cq(pair.far_device.context, 8, nullptr, channel, 0);
  ibv_cq* other = ibv_create_cq(pair.far_device.context, 8, nullptr, channel, 0);
  ASSERT_NE(doomed, nullptr);
  ASSERT_NE(other, nullptr);
  for (ibv_cq* cq : {doomed, other}) {
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pair.far_device.pd, &init);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ASSERT_TRUE(IsReadable(channel->fd, kPatience_ms));
    ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(doomed), 0);
  ASSERT_TRUE(IsReadable(channel->fd, kPatience_ms)) << "the other CQ's event";
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
  EXPECT_EQ(cq, other);
  EXPECT_FALSE(IsReadable(channel->fd, 0));
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(ibv_destroy_cq(other), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// Raises an event of a new CQ, of which nothing is read. Null: it was not raised.
ibv_cq* NewCqWithAnEvent(const OpenDevice& device, ibv_comp_channel* channel) {
  ibv_cq* cq = ibv_create_cq(device.context, 8, nullptr, channel, 0);
  if (cq == nullptr || ibv_req_notify_cq(cq, 0) != 0) return nullptr;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(device.pd, &init);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  if (qp == nullptr ||
      ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0 ||
      ibv_post_recv(qp, &wr, &bad) != 0) {
    return nullptr;
  }
  attr.qp_state = IBV_QPS_ERR;
  const bool raised = ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0;
  ibv_wc wc;
  while (raised && ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return ibv_destroy_qp(qp) == 0 && raised ? cq : nullptr;
}

// Each destruction takes the other queues' events out of the channel for a moment.
TEST_F(VerbsEvents, OfOtherQueuesStayWhileThreadsDestroyQueues) {
  ibv_comp_channel* channel = ibv_create_comp_channel(pair.far_device.context);
  ASSERT_NE(channel, nullptr);
  std::vector<ibv_cq*> kept;
  for (int i = 0; i < 40; ++i) kept.push_back(NewCqWithAnEvent(pair.far_device, channel));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        ibv_cq* cq = NewCqWithAnEvent(pair.far_device, channel);
        ASSERT_NE(cq, nullptr);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_TRUE(IsReadable(channel->fd, kPatience_ms)) << i;
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
    EXPECT_EQ(std::count(kept.begin(), kept.end(), cq), 1);
    ibv_ack_cq_events(cq, 1);
  }
  EXPECT_FALSE(IsReadable(channel->fd, 0));
  for (ibv_cq* cq : kept) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// More events than the socket holds.
TEST_F(VerbsEvents, AreNotLostWhereManyWait) {
  ibv_comp_channel* channel = ibv_create_comp_channel(pair.far_device.context);
  ASSERT_NE(channel, nullptr);
  std::vector<ibv_cq*> cqs;
  for (int i = 0; i < 300; ++i) {
    cqs.push_back(NewCqWithAnEvent(pair.far_device, channel));
    ASSERT_NE(cqs.back(), nullptr);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ibv_destroy_cq(cqs.back()), 0);
    cqs.pop_back();
  }
  for (size_t i = 0; i < cqs.size(); ++i) {
    ASSERT_TRUE(IsReadable(channel->fd, kPatience_ms)) << i;
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
    ibv_ack_cq_events(cq, 1);
  }
  EXPECT_FALSE(IsReadable(channel->fd, 20));
  for (ibv_cq* cq : cqs) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsEvents, HoldUpDestructionUntilTheyAreAcknowledged) {
  ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
  SendOne();
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), 0);
  ASSERT_EQ(ibv_destroy_qp(pair.far.qp), 0);
  pair.far.qp = nullptr;
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(destroyed);
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
  pair.far.cq = nullptr;
}

TEST_F(VerbsEvents, ChannelInUseCannotBeDestroyed) {
  EXPECT_EQ(ibv_destroy_comp_channel(pair.far.channel), EBUSY);
}

TEST_F(VerbsEvents, ChannelsAreCreatedAndDestroyed) {
  for (int i = 0; i < 100; ++i) {
    ibv_comp_channel* channel = ibv_create_comp_channel(pair.near_device.context);
    ASSERT_NE(channel, nullptr);
    ibv_cq* cq = ibv_create_cq(pair.near_device.context, 1, nullptr, channel, 0);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
}

TEST(VerbsAsync, OverflowOfACqIsReported) {
  OpenDevice device("roci1");
  EndpointOptions options;
  options.cq_entries = 1;
  Endpoint endpoint(device, options);
  Buffer buffer(device, 4096, 1);
  ASSERT_EQ(endpoint.ToInit(), 0);
  const int entries = endpoint.cq->cqe;
  for (int i = 0; i <= entries; ++i) ASSERT_EQ(endpoint.PostRecv(buffer.Sge(0, 8)), 0);
  ASSERT_EQ(endpoint.ToState(IBV_QPS_ERR), 0);
  ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms));
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(device.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, endpoint.cq);
  ibv_ack_async_event(&event);
}

TEST(VerbsAsync, EventsOfDestroyedQueuesGoAndOthersKeepTheirOrder) {
  OpenDevice device("roci1");
  EndpointOptions options;
  options.cq_entries = 1;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  Buffer buffer(device, 4096, 1);
  for (int i = 0; i < 5; ++i) {
    endpoints.push_back(std::make_unique<Endpoint>(device, options));
    Endpoint& endpoint = *endpoints.back();
    ASSERT_EQ(endpoint.ToInit(), 0);
    for (int n = 0; n <= endpoint.cq->cqe; ++n) ASSERT_EQ(endpoint.PostRecv(buffer.Sge(0, 8)), 0);
    ASSERT_EQ(endpoint.ToState(IBV_QPS_ERR), 0);
    int unread = 0;
    for (int n = 0; n < 1000 && unread < (i + 1) * 16; ++n) {
      ASSERT_EQ(ioctl(device.context->async_fd, FIONREAD, &unread), 0);
      usleep(1000);
    }
    ASSERT_GE(unread, (i + 1) * 16);
  }
  for (const size_t doomed : {3, 0}) endpoints.erase(endpoints.begin() + static_cast<long>(doomed));
  for (const auto& endpoint : endpoints) {
    ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms));
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(device.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, endpoint->cq);
    ibv_ack_async_event(&event);
  }
  EXPECT_FALSE(IsReadable(device.context->async_fd, 0));
}

TEST(VerbsResize, KeepsUnpolledCompletions) {
  Pair pair;
  Buffer here(pair.near_device, 4096, 1);
  Buffer there(pair.far_device, 4096, 2);
  uint64_t next = 0;
  uint64_t polled = 0;
  for (const int entries : {300, 1000, 40, 256}) {
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED,
                                   there.address(), there.rkey(), next++),
                0);
    }
    for (int i = 0; i < 7; ++i) pair.near.ExpectSuccess(polled++);
    ASSERT_EQ(ibv_resize_cq(pair.near.cq, entries), 0);
    EXPECT_GE(pair.near.cq->cqe, entries);
    while (polled < next - 5) pair.near.ExpectSuccess(polled++);
  }
  while (polled < next) pair.near.ExpectSuccess(polled++);
  EXPECT_TRUE(pair.near.IsQuiet(5));
  EXPECT_EQ(ibv_resize_cq(pair.near.cq, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(pair.near.cq, pair.near_device.attr.max_cqe + 1), EINVAL);
}

}  // namespace
}  // namespace roci::testing
