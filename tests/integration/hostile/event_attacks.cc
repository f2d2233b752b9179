// Attacks with the sockets by which events reach a program: reads that do not end, returned events
// that were never sent, and events held back.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/hostile/campaign.h"
#include "tests/integration/hostile/endless_read.h"
#include "tests/integration/hostile/rig.h"

namespace roci::testing::hostile {
namespace {

// A queue pair in ERR: every post completes, in a queue of its own.
struct Flushing {
  explicit Flushing(Rig& on, uint32_t entries, uint32_t channel = kNone)
      : rig(on), cq(on.MakeCq(entries, channel)), qp(on.MakeQp({}, cq.handle)) {
    EXPECT_EQ(rig.Connect(qp, qp.info.qpn, 1), 0);
    roci_abi_qp_attr attr{};
    attr.state = IBV_QPS_ERR;
    EXPECT_EQ(rig.Modify(qp.info.handle, IBV_QP_STATE, attr), 0);
  }
  void RaiseCompletionEvent() {
    cq.header()->arm = ROCI_ABI_CQ_ARM_ANY;
    rig.Post(qp, roci_abi_send_wqe{}, {});
  }
  // Its completion queue overflows.
  void RaiseAsyncEvent() {
    for (uint32_t i = 0; i <= 2 * cq.capacity; ++i) rig.Post(qp, roci_abi_send_wqe{}, {});
  }
  // The lcore does it.
  void Destroy() {
    EXPECT_EQ(rig.OnHandle(ROCI_ABI_DESTROY_QP, qp.info.handle), 0);
    EXPECT_EQ(rig.OnHandle(ROCI_ABI_DESTROY_CQ, cq.handle), 0);
  }

  Rig& rig;
  MappedCq cq;
  MappedQp qp;
};

void CompletionEventsReadWithoutEnd(Scene&) {
  EndlessRead endless;
  Rig rig;
  const uint32_t channel = rig.CreateChannel();
  ASSERT_NE(channel, 0u);
  const int socket = dup(rig.fds()[0]);
  Flushing first(rig, 16, channel);
  first.RaiseCompletionEvent();
  ASSERT_TRUE(EndlessRead::CanBegin(socket));
  endless.Begin(socket, sizeof(roci_abi_comp_event));
  for (int i = 0; i < 200; ++i) {
    Flushing more(rig, 16, channel);
    more.RaiseCompletionEvent();
    more.Destroy();
    if (::testing::Test::HasFailure()) break;
  }
  first.Destroy();
  EXPECT_FALSE(endless.has_ended());
  close(socket);
}

void AsyncEventsReadWithoutEnd(Scene&) {
  EndlessRead endless;
  Rig rig;
  Flushing first(rig, 1);
  first.RaiseAsyncEvent();
  ASSERT_TRUE(EndlessRead::CanBegin(rig.async_fd));
  endless.Begin(rig.async_fd, sizeof(roci_abi_async_event));
  for (int i = 0; i < 20; ++i) {
    Flushing more(rig, 1);
    more.RaiseAsyncEvent();
    more.Destroy();
    if (::testing::Test::HasFailure()) break;
  }
  first.Destroy();
  EXPECT_FALSE(endless.has_ended());
}

roci_abi_return_events_request Returned(Scene& scene, uint32_t channel) {
  roci_abi_return_events_request request{};
  request.channel = channel;
  request.count = scene.Below(ROCI_ABI_MAX_RETURNED_EVENTS + 1);
  for (roci_abi_async_event& event : request.events) {
    event.element = scene.Below(3) != 0 ? scene.Below(300) : scene.Random64();
    event.type = scene.Random();
  }
  return request;
}

// Events that the daemon never sent, of any object.
void InventedEventsReturned(Scene& scene) {
  Rig rig;
  const uint32_t channel = rig.CreateChannel();
  ASSERT_NE(channel, 0u);
  while (scene.Goes()) {
    Flushing object(rig, 1, channel);
    object.RaiseCompletionEvent();
    roci_abi_plain_response response;
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(rig.Call(ROCI_ABI_RETURN_EVENTS, Returned(scene, channel), response), 0);
      auto request = Returned(scene, kNone);
      request.flags = scene.Below(2);
      EXPECT_EQ(rig.Call(ROCI_ABI_RETURN_EVENTS, request, response), 0);
    }
    object.RaiseAsyncEvent();
    object.Destroy();
  }
}

// Asynchronous events pile up in the daemon.
void EventsHeldForEver(Scene& scene) {
  Rig rig;
  while (scene.Goes()) {
    auto request = Returned(scene, kNone);
    request.count = ROCI_ABI_MAX_RETURNED_EVENTS;
    request.flags = ROCI_ABI_RETURN_HOLD;
    roci_abi_plain_response response;
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(rig.Call(ROCI_ABI_RETURN_EVENTS, request, response), 0);
    }
    Flushing object(rig, 1);
    object.RaiseAsyncEvent();
    object.Destroy();
  }
}

// The program's end shut down, made to block, and read in parts.
void SocketsMeddledWith(Scene& scene) {
  Rig rig;
  const uint32_t channel = rig.CreateChannel();
  ASSERT_NE(channel, 0u);
  const int socket = dup(rig.fds()[0]);
  for (int i = 0; scene.Goes(); ++i) {
    fcntl(socket, F_SETFL, i % 2 != 0 ? O_NONBLOCK : 0);
    const int size = i % 3 != 0 ? 1 : 1 << 20;
    setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    fcntl(rig.async_fd, F_SETFL, i % 2 != 0 ? O_ASYNC : 0);
    Flushing object(rig, 4, channel);
    object.RaiseCompletionEvent();
    object.RaiseAsyncEvent();
    usleep(100);
    char part[5];
    [[maybe_unused]] const ssize_t got = recv(socket, part, sizeof(part), MSG_DONTWAIT);
    EXPECT_LT(send(socket, part, sizeof(part), MSG_NOSIGNAL), 0);
    if (i == 20) shutdown(rig.async_fd, SHUT_RDWR);
    object.Destroy();
  }
  close(socket);
}

}  // namespace

void AddEventAttacks(Attacks& out) {
  const auto add = [&](const char* name, std::function<void(Scene&)> run, bool in_sample = false) {
    out.push_back({"Events", name, std::move(run), in_sample});
  };
  add("CompletionEventsReadWithoutEnd", CompletionEventsReadWithoutEnd, true);
  add("AsyncEventsReadWithoutEnd", AsyncEventsReadWithoutEnd, true);
  add("InventedEventsReturned", InventedEventsReturned, true);
  add("EventsHeldForEver", EventsHeldForEver);
  add("SocketsMeddledWith", SocketsMeddledWith, true);
}

}  // namespace roci::testing::hostile
