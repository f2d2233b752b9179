// Two connected nodes that read and write each other's memory, a part of which may block.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {

// The part of a node's memory that blocks, at its end.
inline constexpr size_t kWaitingAt = 512 << 10;
inline constexpr size_t kWaitingBytes = 256 << 10;
// READs of another program during a stall.
inline constexpr int kReads = 300;

enum class Access : uint8_t { kMapped, kSystemCalls };

// A pair of connected nodes, each with a user of its own.
class End {
 public:
  End(dataplane::Wire& wire, uint32_t number, Access access = Access::kSystemCalls)
      : a_(TestDataplane(), &wire, Config(number, access)),
        b_(TestDataplane(), &wire, Config(number + 1, access)),
        a_cq_(a_.client(), 256),
        b_cq_(b_.client(), 256),
        qp_a_(a_.client(), QpConfig(a_cq_)),
        qp_b_(b_.client(), QpConfig(b_cq_)) {
    const ConnectOptions options{.timeout = 19};
    EXPECT_EQ(Connect(a_, qp_a_, b_, qp_b_.qp().qpn(), options), roce::ModifyResult::kOk);
    EXPECT_EQ(Connect(b_, qp_b_, a_, qp_a_.qp().qpn(), options), roce::ModifyResult::kOk);
  }

  Node& a() { return a_; }
  Node& b() { return b_; }
  AppCq& cq() { return a_cq_; }

  // From or to `length` bytes at `offset` of a's memory, to or from `remote` in b's.
  void Post(roci_abi_send_opcode opcode, size_t offset, uint32_t length, size_t remote) {
    SendRequest request;
    request.head.opcode = static_cast<uint8_t>(opcode);
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.wr_id = ++last_;
    request.head.remote_va = b_.va(remote);
    request.head.rkey = b_.key();
    if (opcode == ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD) request.head.u.atomic.compare_add = 1;
    request.sges = {a_.Sge(offset, length)};
    qp_a_.Post(request);
    qp_a_.Ring();
  }
  void ExpectSuccess(int timeout_ms = 5000) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe, timeout_ms));
    EXPECT_EQ(cqe.status, 0u);
    EXPECT_EQ(cqe.wr_id, last_);
  }
  // The next completion is a success.
  void Await(int timeout_ms) {
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe, timeout_ms));
    EXPECT_EQ(cqe.status, 0u);
  }
  bool IsQuiet() {
    roci_abi_cqe cqe;
    return !a_cq_.Poll(&cqe);
  }
  // A few READs, which must succeed.
  void Read(int count = kReads) {
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
      Post(ROCI_ABI_WR_RDMA_READ, 0, 8, 64);
      ExpectSuccess();
    }
  }

 private:
  static Node::Config Config(uint32_t number, Access access) {
    Node::Config config;
    config.number = number;
    config.process_vm = access == Access::kSystemCalls;
    return config;
  }
  static dataplane::QueuePairConfig QpConfig(AppCq& cq) {
    dataplane::QueuePairConfig config;
    config.pd = Node::kPd;
    config.send_cq = cq.cq();
    config.recv_cq = cq.cq();
    config.max_send_wr = 64;
    config.max_recv_wr = 64;
    return config;
  }

  Node a_;
  Node b_;
  AppCq a_cq_;
  AppCq b_cq_;
  AppQp qp_a_;
  AppQp qp_b_;
  uint64_t last_ = 0;
};

}  // namespace roci::testing
