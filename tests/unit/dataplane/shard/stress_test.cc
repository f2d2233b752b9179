// Many queue pairs, many messages, all operations at once, on one lcore and across two.
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::testing {
namespace {

using dataplane::Wire;

constexpr uint32_t kSlice = 8192;  // bytes of each side's memory per queue pair
constexpr uint32_t kDepth = 8;

// A pair of queue pairs and the expected memory. WRITEs and SENDs go to the lower half of the
// slice, READs come from the upper half.
struct Flow {
  std::unique_ptr<AppQp> a;
  std::unique_ptr<AppQp> b;
  uint32_t posted = 0;
  uint32_t done = 0;
};

class Stress : public ::testing::TestWithParam<uint32_t> {};  // the peer's lcore

using Steady = std::chrono::steady_clock;

// Every flow runs `messages` requests of random kind and length, a few at a time. A WRITE or SEND
// carries the bytes of its place in the slice, so that the final memory is known whatever the
// order.
class FlowRun {
 public:
  FlowRun(uint32_t lcore_b, uint32_t flow_count, uint32_t messages, uint32_t seed)
      : messages_(messages),
        random_(seed),
        wire_(TestDataplane()),
        a_(TestDataplane(), &wire_, NodeConfig(1, 0, flow_count)),
        b_(TestDataplane(), &wire_, NodeConfig(2, lcore_b, flow_count)),
        a_cq_(a_.client(), flow_count * kDepth),
        b_cq_(b_.client(), flow_count * kDepth),
        flows_(flow_count),
        written_(flow_count, std::vector<bool>(kSlice / 2)) {}

  void Run() {
    FillMemory();
    for (Flow& flow : flows_) Open(flow);
    auto last_progress = Steady::now();
    while (done_ < flows_.size() * messages_) {
      for (uint32_t i = 0; i < flows_.size(); ++i) PostSome(i);
      if (Poll()) {
        last_progress = Steady::now();
        continue;
      }
      sched_yield();
      ASSERT_LT(Steady::now() - last_progress, std::chrono::seconds(10)) << Stuck();
    }
    for (int i = 0; i < 1'000'000 && receives_ < sends_; ++i) Poll();
    EXPECT_EQ(receives_, sends_);
    CheckMemory();
  }

 private:
  static Node::Config NodeConfig(uint32_t number, uint32_t lcore, uint32_t flow_count) {
    Node::Config config;
    config.number = number;
    config.lcore = lcore;
    config.memory_bytes = size_t{flow_count} * kSlice;
    return config;
  }

  void FillMemory() {
    for (size_t i = 0; i < flows_.size() * kSlice; ++i) {
      a_.memory()[i] = static_cast<std::byte>(i * 131 >> 3);
      b_.memory()[i] = i % kSlice < kSlice / 2 ? std::byte{0} : a_.memory()[i];
    }
  }

  void Open(Flow& flow) {
    dataplane::QueuePairConfig config;
    config.pd = Node::kPd;
    config.max_send_wr = kDepth;
    config.max_recv_wr = kDepth;
    config.send_cq = config.recv_cq = a_cq_.cq();
    flow.a = std::make_unique<AppQp>(a_.client(), config);
    config.send_cq = config.recv_cq = b_cq_.cq();
    flow.b = std::make_unique<AppQp>(b_.client(), config);
    ConnectOptions options;
    options.mtu = roce::PathMtu::k256;
    options.first_psn = static_cast<uint32_t>(random_());
    ASSERT_EQ(Connect(a_, *flow.a, b_, flow.b->qp().qpn(), options), roce::ModifyResult::kOk);
    ASSERT_EQ(Connect(b_, *flow.b, a_, flow.a->qp().qpn(), options), roce::ModifyResult::kOk);
  }

  void PostSome(uint32_t index) {
    Flow& flow = flows_[index];
    for (; flow.posted < messages_ && flow.posted - flow.done < kDepth; ++flow.posted) {
      flow.a->Post(RandomRequest(index));
    }
    flow.a->Ring();
  }

  SendRequest RandomRequest(uint32_t index) {
    const size_t base = size_t{index} * kSlice;
    const auto length = static_cast<uint32_t>(random_() % 1000);
    const auto offset = static_cast<uint32_t>(random_() % (kSlice / 2 - 1000));
    SendRequest request;
    request.head.wr_id = index;
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.rkey = b_.key();
    request.head.remote_va = b_.va(base + offset);
    request.sges = {a_.Sge(base + offset, length)};
    const auto kind = random_() % 3;
    if (kind == 0) {
      request.head.opcode = ROCI_ABI_WR_RDMA_READ;
      request.head.remote_va += kSlice / 2;
      request.sges = {a_.Sge(base + kSlice / 2 + offset, length)};
      return request;
    }
    for (uint32_t i = 0; i < length; ++i) written_[index][offset + i] = true;
    request.head.opcode = kind == 1 ? ROCI_ABI_WR_RDMA_WRITE : ROCI_ABI_WR_SEND;
    if (kind == 2) {
      flows_[index].b->PostRecv(index, {b_.Sge(base + offset, 1000)});
      flows_[index].b->Ring();
      ++sends_;
    }
    return request;
  }

  // True if something was done.
  bool Poll() {
    roci_abi_cqe cqe;
    const uint64_t before = done_;
    while (a_cq_.Poll(&cqe)) {
      EXPECT_EQ(cqe.status, 0u);
      EXPECT_EQ(flows_[cqe.wr_id].a->qp().handle(), cqe.qp_handle);
      ++flows_[cqe.wr_id].done;
      ++done_;
    }
    for (; b_cq_.Poll(&cqe); ++receives_) EXPECT_EQ(cqe.status, 0u);
    return done_ != before;
  }

  void CheckMemory() {
    uint64_t wrong = 0;
    for (size_t i = 0; i < flows_.size() * kSlice; ++i) {
      const size_t in_slice = i % kSlice;
      const bool same = in_slice >= kSlice / 2 || written_[i / kSlice][in_slice];
      if (b_.memory()[i] != (same ? a_.memory()[i] : std::byte{0})) ++wrong;
    }
    EXPECT_EQ(wrong, 0u);
  }

  // Describes the first flow that is not done.
  std::string Stuck() {
    for (Flow& flow : flows_) {
      if (flow.done == messages_) continue;
      const auto info = flow.a->Inspect();
      const roci_abi_queue* queue = flow.a->send_queue();
      const auto& debug = info.debug.requester;
      std::ostringstream out;
      out << "posted " << flow.posted << " done " << flow.done << " producer " << queue->producer
          << " armed " << queue->armed << " taken " << info.send_taken << " active " << info.active
          << " state " << static_cast<int>(info.state) << " records " << debug.records << " una "
          << debug.oldest_unacknowledged.value() << " next " << debug.next_to_send.value()
          << " deadline " << debug.deadline << " tx " << info.tx_packets << " rx "
          << info.rx_packets << " drops " << info.drops;
      return out.str();
    }
    return "nothing";
  }

  uint32_t messages_;
  std::mt19937 random_;
  Wire wire_;
  Node a_;
  Node b_;
  AppCq a_cq_;
  AppCq b_cq_;
  std::vector<Flow> flows_;
  std::vector<std::vector<bool>> written_;  // by flow and byte of the lower half
  uint64_t done_ = 0;
  uint64_t sends_ = 0;
  uint64_t receives_ = 0;
};

TEST_P(Stress, FewQueuePairsManyMessages) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  FlowRun(GetParam(), 5, 10000, seed).Run();
}

TEST_P(Stress, ManyQueuePairsFewMessages) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  FlowRun(GetParam(), 2000, 20, seed).Run();
}

// Queue pairs and whole sessions are destroyed with requests in flight.
TEST_P(Stress, EverythingCanBeTornDownInFlight) {
  for (int round = 0; round < 10; ++round) {
    Wire wire(TestDataplane());
    Node::Config config;
    Node a(TestDataplane(), &wire, config);
    config.number = 2;
    config.lcore = GetParam();
    auto b = std::make_unique<Node>(TestDataplane(), &wire, config);
    AppCq a_cq(a.client(), 4096);
    AppCq b_cq(b->client(), 4096);
    dataplane::QueuePairConfig qp_config;
    qp_config.pd = Node::kPd;
    qp_config.max_send_wr = 64;
    std::vector<std::unique_ptr<AppQp>> qps;
    for (int i = 0; i < 20; ++i) {
      qp_config.send_cq = qp_config.recv_cq = a_cq.cq();
      qps.push_back(std::make_unique<AppQp>(a.client(), qp_config));
      qp_config.send_cq = qp_config.recv_cq = b_cq.cq();
      AppQp peer(b->client(), qp_config);
      ConnectOptions options;
      options.timeout = 8;
      options.retry_count = 1;
      ASSERT_EQ(Connect(a, *qps.back(), *b, peer.qp().qpn(), options), roce::ModifyResult::kOk);
      ASSERT_EQ(Connect(*b, peer, a, qps.back()->qp().qpn(), options), roce::ModifyResult::kOk);
    }
    for (auto& qp : qps) {
      for (int i = 0; i < 64; ++i) {
        SendRequest request;
        request.head.opcode = i % 2 == 0 ? ROCI_ABI_WR_RDMA_WRITE : ROCI_ABI_WR_RDMA_READ;
        request.head.flags = ROCI_ABI_SEND_SIGNALED;
        request.head.rkey = b->key();
        request.head.remote_va = b->va();
        request.sges = {a.Sge(0, 100000)};
        qp->Post(request);
      }
      qp->Ring();
    }
    for (size_t i = 0; i < qps.size(); i += 2)
      a.client().Do(dataplane::DestroyQueuePair{qps[i]->qp()});
    b.reset();
    // In the remaining queue pairs every request completes: successfully, with an error or flushed.
    std::set<uint32_t> left;
    for (size_t i = 1; i < qps.size(); i += 2) left.insert(qps[i]->qp().handle());
    roci_abi_cqe cqe;
    for (uint32_t answers = 0; answers < 10 * 64;) {
      ASSERT_TRUE(a_cq.Wait(&cqe)) << answers;
      answers += left.contains(cqe.qp_handle) ? 1 : 0;
    }
  }
}

std::string LcoresName(const ::testing::TestParamInfo<uint32_t>& peer) {
  return peer.param == 0 ? "One" : "Two";
}
INSTANTIATE_TEST_SUITE_P(Lcores, Stress, ::testing::Values(0u, 1u), LcoresName);

}  // namespace
}  // namespace roci::testing
