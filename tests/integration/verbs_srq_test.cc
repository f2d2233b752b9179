// Shared receive queues as programs use them: order, limits, events, resizing, errors.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr size_t kSlot = 4096;

struct Srq {
  Srq(OpenDevice& device, uint32_t max_wr, uint32_t max_sge = 1) {
    ibv_srq_init_attr init = {};
    init.attr.max_wr = max_wr;
    init.attr.max_sge = max_sge;
    srq = ibv_create_srq(device.pd, &init);
    granted = init.attr;
  }
  ~Srq() {
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
  }
  int Post(ibv_sge sge, uint64_t wr_id) {
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  int SetLimit(uint32_t limit) {
    ibv_srq_attr attr = {};
    attr.srq_limit = limit;
    return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  }
  int Resize(uint32_t max_wr) {
    ibv_srq_attr attr = {};
    attr.max_wr = max_wr;
    return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
  }
  ibv_srq_attr Query() {
    ibv_srq_attr attr = {};
    EXPECT_EQ(ibv_query_srq(srq, &attr), 0);
    return attr;
  }
  ibv_srq* srq = nullptr;
  ibv_srq_attr granted = {};
};

// The next asynchronous event of that type; others are acknowledged and dropped. -1 without one in
// time.
int AwaitEvent(ibv_context* context, int type, void** element) {
  for (int i = 0; i < 20; ++i) {
    pollfd ready = {context->async_fd, POLLIN, 0};
    if (poll(&ready, 1, 1000) != 1) return -1;
    ibv_async_event event = {};
    if (ibv_get_async_event(context, &event) != 0) return -1;
    const bool found = event.event_type == type;
    *element = event.element.srq;
    ibv_ack_async_event(&event);
    if (found) return 0;
  }
  return -1;
}

// Senders on the first device, each connected to a QP of the second that uses the SRQ.
class SrqTest : public ::testing::Test {
 protected:
  void Make(uint32_t max_wr, int senders, EndpointOptions options = {}) {
    srq_ = std::make_unique<Srq>(DeviceOne(), max_wr);
    ASSERT_NE(srq_->srq, nullptr);
    options.rnr_retry = 7;
    for (int i = 0; i < senders; ++i) {
      near_.push_back(std::make_unique<Endpoint>(DeviceZero(), options));
      options.srq = srq_->srq;
      far_.push_back(std::make_unique<Endpoint>(DeviceOne(), options));
      options.srq = nullptr;
      ASSERT_EQ(near_[i]->Connect(*far_[i]), 0);
      ASSERT_EQ(far_[i]->Connect(*near_[i]), 0);
    }
  }

 public:
  ~SrqTest() override {
    near_.clear();
    far_.clear();
  }

 protected:
  std::unique_ptr<Srq> srq_;
  std::vector<std::unique_ptr<Endpoint>> near_, far_;
};

TEST_F(SrqTest, QueuePairsTakeInOrderAndFreeSlotsInAnyOrder) {
  constexpr int kSenders = 3;
  constexpr uint32_t kSlots = 5;
  Make(kSlots, kSenders);
  EXPECT_EQ(srq_->granted.max_wr, kSlots);
  Buffer source(DeviceZero(), kSenders * kSlot, 1);
  Buffer target(DeviceOne(), kSlots * kSlot, 2);
  for (uint64_t i = 0; i < kSlots; ++i) ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, kSlot), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
  // Message `round` goes over another QP each time, and must get the receive posted longest ago.
  std::vector<uint64_t> posted = {0, 1, 2, 3, 4};
  for (uint32_t round = 0; round < 200; ++round) {
    const uint32_t sender = round * 7 % kSenders;
    source.Fill(round);
    const uint32_t length = 1 + round * 37 % kSlot;
    ASSERT_EQ(near_[sender]->PostSend(IBV_WR_SEND, source.Sge(sender * kSlot, length)), 0);
    near_[sender]->ExpectSuccess();
    const ibv_wc wc = far_[sender]->Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << round;
    ASSERT_EQ(wc.wr_id, posted.front()) << round;
    EXPECT_EQ(wc.qp_num, far_[sender]->qp->qp_num);
    EXPECT_EQ(wc.byte_len, length);
    EXPECT_EQ(memcmp(target.data() + wc.wr_id * kSlot, source.data() + sender * kSlot, length), 0);
    posted.erase(posted.begin());
    if (round % 3 != 2 || posted.empty()) {
      ASSERT_EQ(srq_->Post(target.Sge(wc.wr_id * kSlot, kSlot), wc.wr_id), 0);
      posted.push_back(wc.wr_id);
    }
    if (posted.size() == 1) {  // the delayed ones, newest first
      for (uint64_t id = kSlots; id-- > 0;) {
        if (id == posted.front()) continue;
        ASSERT_EQ(srq_->Post(target.Sge(id * kSlot, kSlot), id), 0);
        posted.push_back(id);
      }
    }
  }
}

TEST_F(SrqTest, ThreadsPostWhileOthersPoll) {
  constexpr uint32_t kMessages = 800;
  Make(64, 1);
  Buffer source(DeviceZero(), 64, 1);
  Buffer target(DeviceOne(), 64, 2);
  std::atomic<uint32_t> next{0};
  const auto post = [&] {
    for (uint32_t id = next++; id < kMessages; id = next++) {
      int error;
      while ((error = srq_->Post(target.Sge(0, 64), id)) == ENOMEM) std::this_thread::yield();
      EXPECT_EQ(error, 0);
    }
  };
  std::thread first(post), second(post);
  std::set<uint64_t> seen;
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, 64)), 0);
    near_[0]->ExpectSuccess();
    const ibv_wc wc = far_[0]->Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_TRUE(seen.insert(wc.wr_id).second) << wc.wr_id;
  }
  first.join();
  second.join();
}

TEST_F(SrqTest, LimitEventIsSentOnceWhenArmed) {
  Make(16, 1);
  Buffer source(DeviceZero(), 64, 1);
  Buffer target(DeviceOne(), 64, 2);
  const auto send = [&] {
    ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
    near_[0]->ExpectSuccess();
    EXPECT_EQ(far_[0]->Wait().status, IBV_WC_SUCCESS);
  };
  for (int i = 0; i < 10; ++i) ASSERT_EQ(srq_->Post(target.Sge(0, 64), 0), 0);
  EXPECT_EQ(srq_->SetLimit(17), EINVAL);
  ASSERT_EQ(srq_->SetLimit(8), 0);
  EXPECT_EQ(srq_->Query().srq_limit, 8u);
  send();
  send();
  EXPECT_EQ(srq_->Query().srq_limit, 8u);
  send();
  EXPECT_EQ(srq_->Query().srq_limit, 0u);
  void* element = nullptr;
  ASSERT_EQ(AwaitEvent(DeviceOne().context, IBV_EVENT_SRQ_LIMIT_REACHED, &element), 0);
  EXPECT_EQ(element, srq_->srq);
  send();
  EXPECT_EQ(AwaitEvent(DeviceOne().context, IBV_EVENT_SRQ_LIMIT_REACHED, &element), -1);
}

TEST_F(SrqTest, NoReceiveIsNotReady) {
  Make(4, 2);
  Buffer source(DeviceZero(), 64, 1);
  Buffer target(DeviceOne(), 64, 2);
  ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
  EXPECT_TRUE(near_[0]->IsQuiet(50));
  ASSERT_EQ(srq_->Post(target.Sge(0, 64), 5), 0);
  near_[0]->ExpectSuccess();
  EXPECT_EQ(far_[0]->Wait().wr_id, 5u);
}

TEST_F(SrqTest, ResizeKeepsPostedReceives) {
  Make(4, 1);
  Buffer source(DeviceZero(), kSlot, 1);
  Buffer target(DeviceOne(), 64 * kSlot, 2);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, kSlot), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
  EXPECT_EQ(srq_->Resize(3), EINVAL);
  EXPECT_EQ(srq_->Resize(static_cast<uint32_t>(DeviceOne().attr.max_srq_wr) + 1), EINVAL);
  ASSERT_EQ(srq_->Resize(37), 0);
  EXPECT_EQ(srq_->Query().max_wr, 37u);
  for (uint64_t i = 4; i < 37; ++i) ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, kSlot), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
  const auto receive = [&](uint64_t wr_id) {
    ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, kSlot)), 0);
    near_[0]->ExpectSuccess();
    const ibv_wc wc = far_[0]->Wait();
    ASSERT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(memcmp(target.data() + wr_id * kSlot, source.data(), kSlot), 0);
  };
  for (uint64_t i = 0; i < 30; ++i) receive(i);
  ASSERT_EQ(srq_->Resize(8), 0);
  ASSERT_EQ(srq_->Post(target.Sge(40 * kSlot, kSlot), 40), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
  ASSERT_EQ(srq_->Resize(20), 0);
  for (uint64_t i = 41; i < 53; ++i) ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, kSlot), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
  for (uint64_t i = 30; i < 37; ++i) receive(i);
  for (uint64_t i = 40; i < 53; ++i) receive(i);
}

TEST_F(SrqTest, ErrorFlushesNothingAndRaisesAnEvent) {
  Make(8, 2);
  Buffer source(DeviceZero(), 64, 1);
  Buffer target(DeviceOne(), 64, 2);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(srq_->Post(target.Sge(0, 64), i), 0);
  ASSERT_EQ(far_[0]->ToState(IBV_QPS_ERR), 0);
  void* element = nullptr;
  ASSERT_EQ(AwaitEvent(DeviceOne().context, IBV_EVENT_QP_LAST_WQE_REACHED, &element), 0);
  EXPECT_EQ(element, far_[0]->qp);
  EXPECT_TRUE(far_[0]->IsQuiet(50));
  ASSERT_EQ(near_[1]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
  near_[1]->ExpectSuccess();
  EXPECT_EQ(far_[1]->Wait().wr_id, 0u);
}

// Unpolled completions of a destroyed QP release their slots.
TEST_F(SrqTest, DestroyedQueuePairsReleaseSlots) {
  Make(4, 2);
  Buffer source(DeviceZero(), 64, 1);
  Buffer target(DeviceOne(), 64, 2);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(srq_->Post(target.Sge(0, 64), i), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
    near_[0]->ExpectSuccess();
  }
  EXPECT_EQ(srq_->Post(target.Sge(0, 64), 9), ENOMEM);
  far_.erase(far_.begin());
  for (uint64_t i = 4; i < 7; ++i) ASSERT_EQ(srq_->Post(target.Sge(0, 64), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 64), 9), ENOMEM);
  for (uint64_t i = 3; i < 7; ++i) {
    ASSERT_EQ(near_[1]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
    near_[1]->ExpectSuccess();
    EXPECT_EQ(far_[0]->Wait().wr_id, i);
  }
}

// Messages of an unreliable connection use it, too. A message that is too long only consumes its
// receive, which completes.
TEST_F(SrqTest, UnreliableConnectionsUseIt) {
  EndpointOptions options;
  options.type = IBV_QPT_UC;
  Make(4, 2, options);
  Buffer source(DeviceZero(), kSlot, 1);
  Buffer target(DeviceOne(), 4 * kSlot, 2);
  const auto send = [&](int i, size_t length) {
    EXPECT_EQ(near_[i]->PostSend(IBV_WR_SEND, source.Sge(0, length)), 0);
    near_[i]->ExpectSuccess();
    return far_[i]->Wait();
  };
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, i == 1 ? 1500 : kSlot), i), 0);
  }
  const ibv_wc first = send(0, kSlot);
  EXPECT_EQ(first.status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.wr_id, 0u);
  const ibv_wc too_long = send(1, 1501);
  EXPECT_EQ(too_long.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(too_long.wr_id, 1u);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = send(1 - i, kSlot);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 2u + i);
    EXPECT_EQ(wc.byte_len, kSlot);
    EXPECT_EQ(memcmp(target.data() + wc.wr_id * kSlot, source.data(), kSlot), 0);
  }
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(srq_->Post(target.Sge(i * kSlot, kSlot), i), 0);
  EXPECT_EQ(srq_->Post(target.Sge(0, 1), 9), ENOMEM);
}

// The address of the queue's ring in this process, if only one shared receive queue exists.
uint32_t* FindProducer() {
  std::ifstream maps("/proc/self/maps");
  uint32_t* found = nullptr;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:roci-srq") == std::string::npos) continue;
    if (found != nullptr) return nullptr;
    found = reinterpret_cast<uint32_t*>(std::stoull(line, nullptr, 16));
  }
  return found;
}

// A program that writes invalid data into the ring gets an error event for the queue and for the
// queue pairs that use it; other programs are not affected.
TEST_F(SrqTest, InvalidRingContentsAreAnErrorOfTheQueue) {
  Make(4, 2);
  Srq other(DeviceOne(), 4);
  EXPECT_EQ(FindProducer(), nullptr) << "two of them";
  ASSERT_EQ(ibv_destroy_srq(other.srq), 0);
  other.srq = nullptr;
  uint32_t* producer = FindProducer();
  ASSERT_NE(producer, nullptr);
  Buffer source(DeviceZero(), 64, 1);
  __atomic_store_n(producer, 1000u, __ATOMIC_RELEASE);
  ASSERT_EQ(near_[0]->PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
  void* element = nullptr;
  ASSERT_EQ(AwaitEvent(DeviceOne().context, IBV_EVENT_SRQ_ERR, &element), 0);
  EXPECT_EQ(element, srq_->srq);
  ASSERT_EQ(AwaitEvent(DeviceOne().context, IBV_EVENT_QP_FATAL, &element), 0);
  EXPECT_EQ(element, far_[0]->qp);
  EXPECT_NE(near_[0]->Wait().status, IBV_WC_SUCCESS);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(far_[0]->qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  Pair bystander;
  Buffer target(bystander.far_device, 64, 2);
  ASSERT_EQ(bystander.far.PostRecv(target.Sge(0, 64)), 0);
  ASSERT_EQ(bystander.near.PostSend(IBV_WR_SEND, source.Sge(0, 8)), 0);
  bystander.near.ExpectSuccess();
  bystander.far.ExpectSuccess(2);
}

TEST_F(SrqTest, WrongUseIsRefused) {
  Make(4, 1);
  Buffer target(DeviceOne(), 64, 2);
  EXPECT_EQ(ibv_destroy_srq(srq_->srq), EBUSY);
  EXPECT_EQ(far_[0]->PostRecv(target.Sge(0, 64)), EINVAL);
  uint32_t number = 0;
  EXPECT_NE(ibv_get_srq_num(srq_->srq, &number), 0);
  ibv_sge sges[2] = {target.Sge(0, 1), target.Sge(1, 1)};
  ibv_recv_wr wr = {};
  wr.sg_list = sges;
  wr.num_sge = 2;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq_->srq, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(far_[0]->qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(init.srq, srq_->srq);
}

TEST(SrqLimits, AreExact) {
  OpenDevice& device = DeviceOne();
  ASSERT_GT(device.attr.max_srq, 0);
  const auto create = [&](int max_wr, int max_sge) {
    Srq srq(device, static_cast<uint32_t>(max_wr), static_cast<uint32_t>(max_sge));
    return srq.srq != nullptr ? 0 : errno;
  };
  EXPECT_EQ(create(device.attr.max_srq_wr, device.attr.max_srq_sge), 0);
  EXPECT_EQ(create(device.attr.max_srq_wr + 1, 1), EINVAL);
  EXPECT_EQ(create(1, device.attr.max_srq_sge + 1), EINVAL);
  EXPECT_EQ(create(0, 1), EINVAL);
  std::vector<std::unique_ptr<Srq>> all;
  for (int i = 0; i < device.attr.max_srq; ++i) {
    all.push_back(std::make_unique<Srq>(device, 1));
    ASSERT_NE(all.back()->srq, nullptr) << i;
  }
  EXPECT_EQ(create(1, 1), ENOMEM);
}

}  // namespace
}  // namespace roci::testing
