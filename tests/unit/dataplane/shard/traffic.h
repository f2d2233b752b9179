// Two nodes on a wire, for tests of whole messages: from the sender's rings to the receiver's
// memory and completion queues.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "verbs_provider/abi/session.h"

namespace roci::testing {

struct Layout {
  uint32_t lcore_a = 0;
  uint32_t lcore_b = 0;
  bool process_vm = false;
};

inline std::string LayoutName(const ::testing::TestParamInfo<Layout>& info) {
  return std::string(info.param.lcore_a == info.param.lcore_b ? "OneLcore" : "TwoLcores") +
         (info.param.process_vm ? "ProcessVm" : "Mapped");
}

// Two nodes; on one lcore or on two; memory mapped or accessed by system calls.
class Traffic : public ::testing::TestWithParam<Layout> {
 protected:
  Traffic()
      : wire_(TestDataplane()),
        a_(TestDataplane(), &wire_, NodeConfig(1, GetParam().lcore_a)),
        b_(TestDataplane(), &wire_, NodeConfig(2, GetParam().lcore_b)),
        a_cq_(a_.client(), 1024),
        b_cq_(b_.client(), 1024) {}

  static Node::Config NodeConfig(uint32_t number, uint32_t lcore) {
    Node::Config config;
    config.number = number;
    config.lcore = lcore;
    config.process_vm = GetParam().process_vm;
    return config;
  }

  static dataplane::QueuePairConfig QpConfig(AppCq& cq, roce::QpType type) {
    dataplane::QueuePairConfig config;
    config.type = type;
    config.pd = Node::kPd;
    config.send_cq = cq.cq();
    config.recv_cq = cq.cq();
    config.user_handle = 0xABC;
    config.max_send_wr = 64;
    config.max_recv_wr = 64;
    config.max_send_sge = 4;
    config.max_recv_sge = 4;
    config.max_inline = 128;
    return config;
  }

  struct Pair {
    AppQp a;
    AppQp b;
  };
  std::unique_ptr<Pair> MakePair(roce::QpType type, const ConnectOptions& options = {}) {
    std::unique_ptr<Pair> pair(new Pair{AppQp(a_.client(), QpConfig(a_cq_, type)),
                                        AppQp(b_.client(), QpConfig(b_cq_, type))});
    EXPECT_EQ(Connect(a_, pair->a, b_, pair->b.qp().qpn(), options), roce::ModifyResult::kOk);
    EXPECT_EQ(Connect(b_, pair->b, a_, pair->a.qp().qpn(), options), roce::ModifyResult::kOk);
    return pair;
  }

  static SendRequest Request(roci_abi_send_opcode opcode, uint64_t wr_id,
                             std::vector<roci_abi_sge> sges) {
    SendRequest request;
    request.head.opcode = static_cast<uint8_t>(opcode);
    request.head.flags = ROCI_ABI_SEND_SIGNALED;
    request.head.wr_id = wr_id;
    request.sges = std::move(sges);
    return request;
  }
  SendRequest ToB(SendRequest request, size_t offset) const {
    request.head.remote_va = b_.va(offset);
    request.head.rkey = b_.key();
    return request;
  }
  void Fill(Node& node, size_t offset, size_t length, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < length; ++i)
      node.memory()[offset + i] = static_cast<std::byte>(random());
  }
  // Posts, waits for the completion, expects it to be good.
  void Complete(AppQp& qp, const SendRequest& request) {
    qp.Post(request);
    qp.Ring();
    roci_abi_cqe cqe;
    ASSERT_TRUE(a_cq_.Wait(&cqe));
    EXPECT_EQ(cqe.status, 0u) << "opcode " << int{request.head.opcode};
    EXPECT_EQ(cqe.wr_id, request.head.wr_id);
    EXPECT_NE(cqe.flags & ROCI_ABI_CQE_SEND, 0);
  }

  dataplane::Wire wire_;
  Node a_;
  Node b_;
  AppCq a_cq_;
  AppCq b_cq_;
};

}  // namespace roci::testing
