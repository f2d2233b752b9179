// Programs that read their events late or without libibverbs, and one that truncates a registered
// file.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

bool IsReadable(int fd, int timeout_ms) {
  pollfd wait = {fd, POLLIN, 0};
  return poll(&wait, 1, timeout_ms) == 1 && (wait.revents & POLLIN) != 0;
}

// Bytes that can be read.
int Readable(int fd) {
  int bytes = 0;
  EXPECT_EQ(ioctl(fd, FIONREAD, &bytes), 0);
  return bytes;
}

class VerbsSlowReader : public ::testing::Test {
 protected:
  static EndpointOptions WithChannel() {
    EndpointOptions options;
    options.with_channel = true;
    return options;
  }
  // One message, and one completion event of the far end that stays unread.
  void CauseEvent() {
    ASSERT_EQ(ibv_req_notify_cq(pair.far.cq, 0), 0);
    ASSERT_EQ(pair.far.PostRecv(there.Sge(0, 64)), 0);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_SEND, here.Sge(0, 64)), 0);
    pair.near.ExpectSuccess();
    pair.far.ExpectSuccess(2);
  }

  Pair pair{WithChannel()};
  Buffer here{pair.near_device, 4096, 1};
  Buffer there{pair.far_device, 4096, 2};
};

// As with the kernel's descriptors, however much it asks for.
TEST_F(VerbsSlowReader, TakesOneCompletionEventPerRead) {
  constexpr unsigned kEvents = 60;
  for (unsigned i = 0; i < kEvents; ++i) CauseEvent();
  EXPECT_EQ(Readable(pair.far.channel->fd), int{kEvents * sizeof(ibv_cq*)});
  for (unsigned i = 0; i < kEvents; ++i) {
    // As libibverbs reads it: the object's address as the program knows it.
    std::array<ibv_cq*, 100> read_events;
    ASSERT_EQ(read(pair.far.channel->fd, read_events.data(), sizeof(read_events)),
              ssize_t{sizeof(ibv_cq*)});
    EXPECT_EQ(read_events[0], pair.far.cq) << i;
    if (i % 10 == 0) CauseEvent();
  }
  // What the traffic above has added comes in its turn.
  for (unsigned i = 0; i < kEvents / 10; ++i) {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_TRUE(IsReadable(pair.far.channel->fd, kPatience_ms));
    ASSERT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), 0);
    EXPECT_EQ(cq, pair.far.cq);
  }
  EXPECT_FALSE(IsReadable(pair.far.channel->fd, 0));
  ibv_ack_cq_events(pair.far.cq, kEvents + kEvents / 10);
}

// More events than a socket holds: the traffic goes on, one more is owed per CQ, which stands for
// all that have no room, and comes when there is some; and the next one comes as ever.
TEST_F(VerbsSlowReader, IsOwedAnEventWhereTheSocketIsFull) {
  constexpr unsigned kCaused = 1000;
  for (unsigned i = 0; i < kCaused; ++i) CauseEvent();
  const unsigned room = static_cast<unsigned>(Readable(pair.far.channel->fd)) / sizeof(ibv_cq*);
  EXPECT_GE(room, 16u);
  EXPECT_LT(room, kCaused / 2);
  unsigned events = 0;
  while (IsReadable(pair.far.channel->fd, 200)) {
    ibv_cq* read_event = nullptr;
    ASSERT_EQ(read(pair.far.channel->fd, &read_event, sizeof(read_event)),
              ssize_t{sizeof(read_event)});
    EXPECT_EQ(read_event, pair.far.cq);
    ++events;
  }
  EXPECT_EQ(events, room + 1);
  CauseEvent();
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_TRUE(IsReadable(pair.far.channel->fd, kPatience_ms));
  ASSERT_EQ(ibv_get_cq_event(pair.far.channel, &cq, &cq_context), 0);
  ibv_ack_cq_events(pair.far.cq, events + 1);
}

TEST(VerbsSlowAsync, TakesOneAsynchronousEventPerRead) {
  OpenDevice device("roci1");
  constexpr int kCqs = 9;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  Buffer buffer(device, 4096, 1);
  EndpointOptions options;
  options.cq_entries = 1;
  for (int i = 0; i < kCqs; ++i) {
    Endpoint& endpoint = *endpoints.emplace_back(std::make_unique<Endpoint>(device, options));
    ASSERT_EQ(endpoint.ToInit(), 0);
    const int entries = endpoint.cq->cqe;
    for (int j = 0; j <= entries; ++j) ASSERT_EQ(endpoint.PostRecv(buffer.Sge(0, 8)), 0);
    ASSERT_EQ(endpoint.ToState(IBV_QPS_ERR), 0);  // overflows the CQ
  }
  // struct ib_uverbs_async_event_desc.
  struct Event {
    uint64_t element;
    uint32_t type;
    uint32_t reserved;
  };
  for (int i = 0; i < kCqs - 1; ++i) {
    std::array<Event, 10> read_events;
    ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms));
    ASSERT_EQ(read(device.context->async_fd, read_events.data(), sizeof(read_events)),
              ssize_t{sizeof(Event)});
    EXPECT_EQ(read_events[0].type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(read_events[0].element,
              reinterpret_cast<uint64_t>(endpoints[static_cast<size_t>(i)]->cq));
    ibv_async_event taken = {};
    taken.event_type = IBV_EVENT_CQ_ERR;
    taken.element.cq = endpoints[static_cast<size_t>(i)]->cq;
    ibv_ack_async_event(&taken);
  }
  // The last one by libibverbs.
  ibv_async_event last = {};
  ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms));
  ASSERT_EQ(ibv_get_async_event(device.context, &last), 0);
  EXPECT_EQ(last.element.cq, endpoints.back()->cq);
  ibv_ack_async_event(&last);
}

// A queue pair in the send queue drained state raises an event at each such transition.
void DrainOften(Endpoint& endpoint, unsigned times) {
  for (unsigned i = 0; i < times; ++i) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp, &attr, IBV_QP_STATE), 0);
  }
}

// More than the socket has room for.
constexpr unsigned kManyEvents = 65536 / 16 + 700;

TEST(VerbsSlowAsync, GetsEveryEventEvenLate) {
  OpenDevice device("roci0");
  Endpoint endpoint(device);
  ASSERT_EQ(endpoint.Connect(endpoint), 0);
  DrainOften(endpoint, kManyEvents);
  for (unsigned i = 0; i < kManyEvents; ++i) {
    ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms)) << i;
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(device.context, &event), 0);
    ASSERT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    ASSERT_EQ(event.element.qp, endpoint.qp);
    ibv_ack_async_event(&event);
  }
  EXPECT_FALSE(IsReadable(device.context->async_fd, 100));
}

TEST(VerbsSlowAsync, EventsOfADestroyedQueuePairNeedNotBeRead) {
  OpenDevice device("roci0");
  Endpoint endpoint(device);
  ASSERT_EQ(endpoint.Connect(endpoint), 0);
  DrainOften(endpoint, 3);
  auto other = std::make_unique<Endpoint>(device);
  ASSERT_EQ(other->Connect(*other), 0);
  DrainOften(*other, kManyEvents);
  other.reset();  // returns, since none of its events is left to be acknowledged
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(IsReadable(device.context->async_fd, kPatience_ms));
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(device.context, &event), 0);
    EXPECT_EQ(event.element.qp, endpoint.qp);
    ibv_ack_async_event(&event);
  }
  EXPECT_FALSE(IsReadable(device.context->async_fd, 100));
}

// A shared file that a device has registered.
class SharedFile {
 public:
  static constexpr size_t kSize = 1 << 20;

  explicit SharedFile(OpenDevice& device) : fd_(memfd_create("roci-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kSize), 0);
    data_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(data_, MAP_FAILED);
    std::memset(data_, 0x5A, kSize);
    mr = ibv_reg_mr(device.pd, data_, kSize,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    EXPECT_NE(mr, nullptr);
  }
  ~SharedFile() {
    ibv_dereg_mr(mr);
    munmap(data_, kSize);
    close(fd_);
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  void CutShort() { ASSERT_EQ(ftruncate(fd_, 0), 0); }
  ibv_sge Sge() const {
    return {reinterpret_cast<uint64_t>(data_), static_cast<uint32_t>(kSize), mr->lkey};
  }

  ibv_mr* mr = nullptr;

 private:
  int fd_;
  void* data_;
};

// Posts WRITEs until one fails while another thread truncates the file, and returns the status of
// the failed one.
ibv_wc_status WriteUntilFailure(Pair& pair, const ibv_sge& from, uint64_t to, uint32_t rkey,
                                SharedFile& file) {
  std::thread cutter;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, from, IBV_SEND_SIGNALED, to, rkey), 0);
    const ibv_wc wc = pair.near.Wait();
    if (i == 3) cutter = std::thread([&] { file.CutShort(); });
    if (wc.status == IBV_WC_SUCCESS) continue;
    if (cutter.joinable()) cutter.join();
    return wc.status;
  }
  if (cutter.joinable()) cutter.join();
  return IBV_WC_SUCCESS;
}

TEST(VerbsTruncatedFile, IsALocalProtectionErrorAtTheSender) {
  Pair pair;
  SharedFile file(pair.near_device);
  Buffer there(pair.far_device, SharedFile::kSize, 2);
  EXPECT_EQ(WriteUntilFailure(pair, file.Sge(), there.address(), there.rkey(), file),
            IBV_WC_LOC_PROT_ERR);
}

TEST(VerbsTruncatedFile, IsARemoteOperationErrorAtTheReceiver) {
  Pair pair;
  SharedFile file(pair.far_device);
  Buffer here(pair.near_device, SharedFile::kSize, 1);
  EXPECT_EQ(
      WriteUntilFailure(pair, here.Sge(0, SharedFile::kSize), file.Sge().addr, file.mr->rkey, file),
      IBV_WC_REM_OP_ERR);
}

// Checks that the devices still work; with_daemon.sh checks the daemon.
TEST(VerbsTruncatedFile, DoesNotAffectOthers) {
  Pair others;
  Buffer here(others.near_device, 4096, 1);
  Buffer there(others.far_device, 4096, 2);
  Pair pair;
  SharedFile file(pair.near_device);
  Buffer target(pair.far_device, SharedFile::kSize, 2);
  EXPECT_NE(WriteUntilFailure(pair, file.Sge(), target.address(), target.rkey(), file),
            IBV_WC_SUCCESS);
  ASSERT_EQ(others.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 4096), IBV_SEND_SIGNALED,
                                 there.address(), there.rkey()),
            0);
  others.near.ExpectSuccess();
  EXPECT_EQ(std::memcmp(here.data(), there.data(), 4096), 0);
}

}  // namespace
}  // namespace roci::testing
