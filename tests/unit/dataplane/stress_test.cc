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

// One queue pair pair and what is expected of it. The slice is cut in two: the lower half is
// written and sent to, the upper half is read from.
struct Flow {
  std::unique_ptr<AppQp> a;
  std::unique_ptr<AppQp> b;
  uint32_t posted = 0;
  uint32_t done = 0;
};

class Stress : public ::testing::TestWithParam<uint32_t> {};  // the peer's lcore

using Steady = std::chrono::steady_clock;

// What is known of the first flow that is not done.
std::string Stuck(Node& a, std::vector<Flow>& flows, uint32_t messages) {
  for (Flow& flow : flows) {
    if (flow.done == messages) continue;
    const auto info = a.session().InspectQueuePair(flow.a->qp());
    const roci_abi_queue* queue = flow.a->send_queue();
    const auto& debug = info.debug.requester;
    std::ostringstream out;
    out << "posted " << flow.posted << " done " << flow.done << " producer " << queue->producer
        << " armed " << queue->armed << " taken " << info.send_taken << " active " << info.active
        << " state " << static_cast<int>(info.state) << " records " << debug.records << " una "
        << debug.oldest_unacknowledged.value() << " next " << debug.next_to_send.value()
        << " deadline " << debug.deadline << " tx " << info.tx_packets << " rx " << info.rx_packets
        << " drops " << info.drops;
    return out.str();
  }
  return "nothing";
}

// Every flow runs `messages` requests of random kind and length, a few at a time. WRITEs carry the
// bytes of their place in the slice, so that the final memory is known whatever the order.
void RunFlows(uint32_t lcore_b, uint32_t flow_count, uint32_t messages, uint32_t seed) {
  std::mt19937 random(seed);
  Wire wire(TestDataplane());
  Node::Config config;
  config.memory_bytes = size_t{flow_count} * kSlice;
  Node a(TestDataplane(), &wire, config);
  config.number = 2;
  config.lcore = lcore_b;
  Node b(TestDataplane(), &wire, config);
  AppCq a_cq(a.session(), flow_count * kDepth);
  AppCq b_cq(b.session(), flow_count * kDepth);
  for (size_t i = 0; i < config.memory_bytes; ++i) {
    a.memory()[i] = static_cast<std::byte>(i * 131 >> 3);
    b.memory()[i] = i % kSlice < kSlice / 2 ? std::byte{0} : a.memory()[i];
  }
  dataplane::QueuePairConfig qp_config;
  qp_config.pd = Node::kPd;
  qp_config.max_send_wr = kDepth;
  qp_config.max_recv_wr = kDepth;
  std::vector<Flow> flows(flow_count);
  std::vector<uint32_t> by_handle(65536);
  std::vector<std::vector<bool>> expected(flow_count, std::vector<bool>(kSlice / 2));
  ConnectOptions options;
  options.mtu = roce::PathMtu::k256;
  for (uint32_t i = 0; i < flow_count; ++i) {
    qp_config.send_cq = qp_config.recv_cq = a_cq.cq();
    flows[i].a = std::make_unique<AppQp>(a.session(), qp_config);
    qp_config.send_cq = qp_config.recv_cq = b_cq.cq();
    flows[i].b = std::make_unique<AppQp>(b.session(), qp_config);
    by_handle[flows[i].a->qp().handle()] = i;
    options.first_psn = static_cast<uint32_t>(random());
    ASSERT_EQ(Connect(a, *flows[i].a, b, flows[i].b->qp().qpn(), options), roce::ModifyResult::kOk);
    ASSERT_EQ(Connect(b, *flows[i].b, a, flows[i].a->qp().qpn(), options), roce::ModifyResult::kOk);
  }

  uint64_t done = 0;
  uint64_t receives = 0;
  uint64_t sends = 0;
  roci_abi_cqe cqe;
  auto last_progress = Steady::now();
  while (done < uint64_t{flow_count} * messages) {
    for (uint32_t i = 0; i < flow_count; ++i) {
      Flow& flow = flows[i];
      while (flow.posted < messages && flow.posted - flow.done < kDepth) {
        const size_t base = size_t{i} * kSlice;
        const auto length = static_cast<uint32_t>(random() % 1000);
        const auto offset = static_cast<uint32_t>(random() % (kSlice / 2 - 1000));
        SendRequest request;
        request.head.wr_id = i;
        request.head.flags = ROCI_ABI_SEND_SIGNALED;
        request.head.rkey = b.key();
        switch (random() % 3) {
          case 0:
            request.head.opcode = ROCI_ABI_WR_RDMA_WRITE;
            request.head.remote_va = b.va(base + offset);
            request.sges = {a.Sge(base + offset, length)};
            for (uint32_t k = 0; k < length; ++k) expected[i][offset + k] = true;
            break;
          case 1:
            request.head.opcode = ROCI_ABI_WR_SEND;
            request.sges = {a.Sge(base + offset, length)};
            flow.b->PostRecv(i, {b.Sge(base + offset, 1000)});
            flow.b->Ring();
            for (uint32_t k = 0; k < length; ++k) expected[i][offset + k] = true;
            ++sends;
            break;
          case 2:
            request.head.opcode = ROCI_ABI_WR_RDMA_READ;
            request.head.remote_va = b.va(base + kSlice / 2 + offset);
            request.sges = {a.Sge(base + kSlice / 2 + offset, length)};
            break;
        }
        flow.a->Post(request);
        ++flow.posted;
      }
      flow.a->Ring();
    }
    bool progress = false;
    while (a_cq.Poll(&cqe)) {
      ASSERT_EQ(cqe.status, 0u);
      ASSERT_EQ(by_handle[cqe.qp_handle], cqe.wr_id);
      ++flows[cqe.wr_id].done;
      ++done;
      progress = true;
    }
    while (b_cq.Poll(&cqe)) {
      ASSERT_EQ(cqe.status, 0u);
      ++receives;
    }
    if (progress) {
      last_progress = Steady::now();
      continue;
    }
    sched_yield();
    ASSERT_LT(Steady::now() - last_progress, std::chrono::seconds(10)) << Stuck(a, flows, messages);
  }
  for (int i = 0; i < 1'000'000 && receives < sends; ++i) {
    if (b_cq.Poll(&cqe)) ++receives;
  }
  EXPECT_EQ(receives, sends);
  uint64_t wrong = 0;
  for (size_t i = 0; i < config.memory_bytes; ++i) {
    const size_t in_slice = i % kSlice;
    const bool touched = in_slice >= kSlice / 2 || expected[i / kSlice][in_slice];
    if (b.memory()[i] != (touched ? a.memory()[i] : std::byte{0})) ++wrong;
  }
  EXPECT_EQ(wrong, 0u);
  const auto snapshot = b.device().Snapshot();
  for (size_t i = 1; i < snapshot.drops.size(); ++i) {
    if (snapshot.drops[i] != 0) {
      std::printf("drops %s: %llu\n", roce::kDropReasonNames[i].data(),
                  static_cast<unsigned long long>(snapshot.drops[i]));
    }
  }
}

TEST_P(Stress, FewQueuePairsManyMessages) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  RunFlows(GetParam(), 5, 10000, seed);
}

TEST_P(Stress, ManyQueuePairsFewMessages) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  RunFlows(GetParam(), 2000, 20, seed);
}

// Queue pairs and whole sessions go away with their work under way.
TEST_P(Stress, EverythingCanBeTornDownInFlight) {
  for (int round = 0; round < 10; ++round) {
    Wire wire(TestDataplane());
    Node::Config config;
    Node a(TestDataplane(), &wire, config);
    config.number = 2;
    config.lcore = GetParam();
    auto b = std::make_unique<Node>(TestDataplane(), &wire, config);
    AppCq a_cq(a.session(), 4096);
    AppCq b_cq(b->session(), 4096);
    dataplane::QueuePairConfig qp_config;
    qp_config.pd = Node::kPd;
    qp_config.max_send_wr = 64;
    std::vector<std::unique_ptr<AppQp>> qps;
    for (int i = 0; i < 20; ++i) {
      qp_config.send_cq = qp_config.recv_cq = a_cq.cq();
      qps.push_back(std::make_unique<AppQp>(a.session(), qp_config));
      qp_config.send_cq = qp_config.recv_cq = b_cq.cq();
      AppQp peer(b->session(), qp_config);
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
    for (size_t i = 0; i < qps.size(); i += 2) a.session().DestroyQueuePair(qps[i]->qp());
    b.reset();
    // Those that are left get an answer to every request: good, failed or flushed.
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
