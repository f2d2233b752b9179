// XRC queue pairs, which use the memory of several programs, while copies of one of them stall.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "tests/unit/dataplane/shard/stalled_queue_pair.h"

namespace roci::testing {
namespace {

using roce::QpState;

class StalledXrc : public StalledQueuePair {
 protected:
  dataplane::QueuePairConfig SendConfig() {
    auto config = QpConfig(a_cq_, roce::QpType::kXrcSend);
    config.recv_cq = nullptr;
    config.max_recv_wr = 0;
    return config;
  }
  // Connects `a`, of node a, with a new receive queue pair of `domain`, of node b. Null: failed.
  dataplane::QueuePair* ConnectTo(AppQp& a, dataplane::XrcClient& domain) {
    dataplane::QueuePairConfig config;
    config.type = roce::QpType::kXrcRecv;
    const auto target = domain.Do(dataplane::CreateTarget{config});
    if (!target.ok()) return nullptr;
    const ConnectOptions options{.timeout = 19};
    const bool both =
        Connect(b_, *target->qp, a_, a.qp().qpn(), options) == roce::ModifyResult::kOk &&
        Connect(a_, a.qp(), b_, target->qpn, options) == roce::ModifyResult::kOk;
    return both ? target->qp : nullptr;
  }
  // `remote`: the node whose memory READs and WRITEs access; `srq` is of its program.
  void Post(AppQp& a, roci_abi_send_opcode opcode, uint64_t wr_id, AppSrq& srq, Node& remote,
            uint32_t bytes) {
    SendRequest request;
    request.head.opcode = static_cast<uint8_t>(opcode);
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.wr_id = wr_id;
    request.head.remote_srqn = srq.srq().number();
    request.head.remote_va = remote.va();
    request.head.rkey = remote.key();
    request.sges = {a_.Sge(0, bytes)};
    a.Post(request);
    a.Ring();
  }
};

// The program may destroy the shared receive queue of an XRC queue pair, and its completion queue.
TEST_F(StalledXrc, ReceiveQueueIsDestroyed) {
  dataplane::XrcClient domain(b_.device(), b_.client().lcore_index());
  for (const bool with_cq : {false, true}) {
    SCOPED_TRACE(with_cq);
    AppCq cq(b_.client(), 16);
    AppSrq srq(b_, with_cq ? kSecondAt : kFirstAt, domain.domain(), cq.cq());
    AppQp a(a_.client(), SendConfig());
    ASSERT_NE(ConnectTo(a, domain), nullptr);
    Post(a, ROCI_ABI_WR_SEND, with_cq, srq, b_, kBytes);
    AwaitStall();
    ASSERT_TRUE(b_.client().Do(dataplane::DestroySharedReceiveQueue{srq.srq()}).ok());
    if (with_cq) {
      ASSERT_TRUE(b_.client().Do(dataplane::DestroyCompletionQueue{*cq.cq()}).ok());
    }
    (with_cq ? second_ : first_)->Serve(std::byte{1});
    AwaitEndOfStall();
    Expect(a_cq_, with_cq);
    ExpectQuiet(cq);
  }
}

// The READ is of b's memory, and the copies of b's program stall. The last request was for c's.
TEST_F(StalledXrc, AQueuePairWaitsForTheProgramOfTheResponse) {
  constexpr uint32_t kReadBytes = 512 << 10;
  Node::Config of_c = Config(3, false);
  of_c.device_of = &b_;
  Node c(TestDataplane(), &wire_, of_c);
  dataplane::XrcClient domain(b_.device(), b_.client().lcore_index());
  AppCq c_cq(c.client(), 16);
  AppQp of_b(b_.client(), QpConfig(b_cq_));
  AppSrq b_srq(b_, 0, domain.domain(), b_cq_.cq());
  AppSrq c_srq(c, 0, domain.domain(), c_cq.cq());
  AppQp a(a_.client(), SendConfig());
  dataplane::QueuePair* const target = ConnectTo(a, domain);
  ASSERT_NE(target, nullptr);
  // Others that are busy, so that between two rounds the copies of the responses have mostly ended.
  AppCq busy_cq(a_.client(), 4096);
  std::vector<std::unique_ptr<AppQp>> busy;
  for (int i = 0; i < 64; ++i) {
    busy.push_back(std::make_unique<AppQp>(a_.client(), QpConfig(busy_cq)));
  }
  for (size_t i = 0; i < busy.size(); ++i) {
    ASSERT_EQ(Connect(a_, *busy[i], a_, busy[i ^ 1]->qp().qpn(), {.timeout = 19}),
              roce::ModifyResult::kOk);
  }
  for (const auto& qp : busy) {
    for (uint64_t i = 0; i < 30; ++i) {
      StalledQueuePair::Post(*qp, ROCI_ABI_WR_RDMA_WRITE, i, a_.Sge(0, kReadBytes), a_.va(),
                             a_.key());
    }
  }
  Post(a, ROCI_ABI_WR_RDMA_READ, 1, b_srq, b_, kReadBytes);
  bool stalls = false;
  for (int i = 0; i < 100'000 && !stalls; ++i) {
    b_.lcore().Call([&](const dataplane::OnShard& shard) {
      dataplane::AppCopies& copies = of_b.qp().host(shard).copies();
      stalls = target->core(shard).AnswerQueue() && copies.IsIdle(shard) &&
               target->host(shard).SelectReceiveQueue(c_srq.srq().number());
      if (stalls) copies.Begin(shard);
    });
  }
  ASSERT_TRUE(stalls);
  for (int i = 0; i < 20; ++i) PassRounds();  // more than until its next turn
  EXPECT_EQ(b_.client().Do(dataplane::QueryQueuePair{*target}).state, QpState::kRts);
  ExpectQuiet(a_cq_);
  b_.lcore().Call([&](const dataplane::OnShard& shard) {
    dataplane::AppCopies& copies = of_b.qp().host(shard).copies();
    copies.Settle(shard);
    copies.VisitWaiting(shard, [](dataplane::QueuePair&) {});
  });
  Post(a, ROCI_ABI_WR_RDMA_WRITE, 2, c_srq, c, 8);
  Expect(a_cq_, 1);
  Expect(a_cq_, 2);
  ASSERT_TRUE(b_.client().Do(dataplane::DestroySharedReceiveQueue{b_srq.srq()}).ok());
  ASSERT_TRUE(c.client().Do(dataplane::DestroySharedReceiveQueue{c_srq.srq()}).ok());
}

}  // namespace
}  // namespace roci::testing
