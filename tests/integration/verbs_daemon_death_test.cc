// A program whose daemon is killed gets errors and a fatal event, and never hangs or crashes. Ends
// the daemon (ROCID_PID), so it is a separate program with one test.
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

bool BecomesReadable(int fd) {
  pollfd wait = {fd, POLLIN, 0};
  return poll(&wait, 1, kPatience_ms) == 1;
}

int PollUntilError(ibv_cq* cq) {
  const auto end = Clock::now() + std::chrono::milliseconds(kPatience_ms);
  int result = 0;
  ibv_wc wc;
  while (result >= 0 && Clock::now() < end) result = ibv_poll_cq(cq, 1, &wc);
  return result;
}

TEST(VerbsDaemonDeath, IsSurvived) {
  const char* pid = getenv("ROCID_PID");
  ASSERT_NE(pid, nullptr) << "run it with tests/integration/with_daemon.sh";
  EndpointOptions options;
  options.with_channel = true;
  auto near_device = std::make_unique<OpenDevice>("roci0");
  auto far_device = std::make_unique<OpenDevice>("roci1");
  auto near = std::make_unique<Endpoint>(*near_device, options);
  auto far = std::make_unique<Endpoint>(*far_device, options);
  auto buffer = std::make_unique<Buffer>(*near_device, 1 << 20, 1);
  ASSERT_EQ(near->Connect(*far), 0);
  ASSERT_EQ(far->Connect(*near), 0);
  ASSERT_EQ(far->PostRecv({0, 0, 0}), 0);
  ASSERT_EQ(near->PostSend(IBV_WR_SEND, buffer->Sge(0, 0)), 0);
  near->ExpectSuccess();

  rdma_event_channel* events = rdma_create_event_channel();
  ASSERT_NE(events, nullptr);
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_listen(listener, 1), 0);

  std::thread waiter([&] {  // blocks in read(2)
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(near->channel, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EIO);
  });
  std::thread poller([&] { EXPECT_LT(PollUntilError(near->cq), 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(kill(atoi(pid), SIGKILL), 0);
  waiter.join();
  poller.join();

  rdma_cm_event* cm_event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(events, &cm_event), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  rdma_destroy_event_channel(events);

  ASSERT_TRUE(BecomesReadable(near_device->context->async_fd));
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(near_device->context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);

  // Earlier completions can still be polled; later calls return errors.
  ibv_wc wc = {};
  EXPECT_EQ(ibv_poll_cq(far->cq, 1, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_LT(PollUntilError(far->cq), 0);
  EXPECT_EQ(near->PostSend(IBV_WR_SEND, buffer->Sge(0, 8)), EIO);
  EXPECT_EQ(near->PostRecv(buffer->Sge(0, 8)), EIO);
  EXPECT_EQ(near->ToState(IBV_QPS_ERR), EIO);
  ibv_device_attr attr;
  EXPECT_EQ(ibv_query_device(near_device->context, &attr), EIO);
  errno = 0;
  EXPECT_EQ(ibv_alloc_pd(near_device->context), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(ibv_create_comp_channel(near_device->context), nullptr);
  uint8_t* data = buffer->data();
  EXPECT_EQ(data[12345], PatternByte(1, 12345)) << "memory is unchanged";
  data[12345] = 1;

  // Everything can be destroyed (the destructors check each result).
  buffer.reset();
  near.reset();
  far.reset();
  near_device.reset();
  far_device.reset();
}

}  // namespace
}  // namespace roci::testing
