// Errors are reported as in the manual pages and the IBTA's text.
#include <cerrno>
#include <cstring>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

ibv_qp_state StateOf(Endpoint& endpoint) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  EXPECT_EQ(ibv_query_qp(endpoint.qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

class VerbsErrors : public ::testing::Test {
 protected:
  Pair pair;
  Endpoint& near = pair.near;
  Endpoint& far = pair.far;
  Buffer here{pair.near_device, 65536, 1};
  Buffer there{pair.far_device, 65536, 2};

  // Expects the next completion of `endpoint` to fail with `status`, its QP to be in ERR, and later
  // requests to be flushed.
  void ExpectFailure(Endpoint& endpoint, ibv_wc_status status, uint64_t wr_id = 1) {
    const ibv_wc wc = endpoint.Wait();
    EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.qp_num, endpoint.qp->qp_num);
    EXPECT_EQ(StateOf(endpoint), IBV_QPS_ERR);
    EXPECT_EQ(endpoint.PostSend(IBV_WR_SEND, here.Sge(0, 1), IBV_SEND_SIGNALED, 0, 0, 99), 0);
    const ibv_wc flushed = endpoint.Wait();
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.wr_id, 99u);
  }
};

TEST_F(VerbsErrors, BadRemoteKey) {
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 100), IBV_SEND_SIGNALED, there.address(),
                          there.rkey() ^ 0x5500),
            0);
  ExpectFailure(near, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(there.data()[0], PatternByte(2, 0));
}

TEST_F(VerbsErrors, BadRemoteKeyWithImmediateData) {
  ASSERT_EQ(far.PostRecv(there.Sge(0, 0)), 0);
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE_WITH_IMM, here.Sge(0, 100), IBV_SEND_SIGNALED,
                          there.address(), there.rkey() ^ 0x5500),
            0);
  ExpectFailure(near, IBV_WC_REM_ACCESS_ERR);
  ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_ACCESS_ERR) << ibv_wc_status_str(wc.status);
}

TEST_F(VerbsErrors, RemoteRangeBeyondTheRegion) {
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_READ, here.Sge(0, 100), IBV_SEND_SIGNALED,
                          there.address() + there.size() - 99, there.rkey()),
            0);
  ExpectFailure(near, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VerbsErrors, MissingRemoteRight) {
  Buffer read_only(pair.far_device, 4096, 3, IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_READ, here.Sge(0, 64), IBV_SEND_SIGNALED, read_only.address(),
                          read_only.rkey()),
            0);
  near.ExpectSuccess();
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 64), IBV_SEND_SIGNALED,
                          read_only.address(), read_only.rkey()),
            0);
  ExpectFailure(near, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VerbsErrors, BadLocalKeySmallAndLarge) {
  ibv_sge sge = here.Sge(0, 8);
  sge.lkey ^= 0xAA00;
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, sge), 0);
  ExpectFailure(near, IBV_WC_LOC_PROT_ERR);
  sge.length = 8000;
  ASSERT_EQ(far.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, here.address(), here.rkey()),
            0);
  ExpectFailure(far, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VerbsErrors, LocalRangeBeyondTheRegion) {
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(here.size() - 4, 8)), 0);
  ExpectFailure(near, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VerbsErrors, KeyOfAnotherPd) {
  ibv_pd* other = ibv_alloc_pd(pair.near_device.context);
  ASSERT_NE(other, nullptr);
  uint8_t data[64] = {};
  ibv_mr* mr = ibv_reg_mr(other, data, sizeof(data), 0);
  ASSERT_NE(mr, nullptr);
  const ibv_sge sge = {reinterpret_cast<uintptr_t>(data), 8, mr->lkey};
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, sge), 0);
  ExpectFailure(near, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(VerbsErrors, ReceiveTooShort) {
  ASSERT_EQ(far.PostRecv(there.Sge(0, 10)), 0);
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 11)), 0);
  ExpectFailure(near, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(StateOf(far), IBV_QPS_ERR);
}

TEST_F(VerbsErrors, NoReceivePosted) {
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 100)), 0);
  ExpectFailure(near, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(far.IsQuiet(5));
  EXPECT_EQ(StateOf(far), IBV_QPS_RTS);
}

TEST_F(VerbsErrors, PeerWithoutResponse) {
  ASSERT_EQ(far.ToState(IBV_QPS_RESET), 0);
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 100), IBV_SEND_SIGNALED, there.address(),
                          there.rkey()),
            0);
  ExpectFailure(near, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(VerbsErrors, MisalignedAtomic) {
  ibv_sge sge = here.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = there.address() + 4;
  wr.wr.atomic.rkey = there.rkey();
  ASSERT_EQ(near.Post(wr), 0);
  ExpectFailure(near, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(VerbsErrors, FlushesInOrderOnTheWayToErr) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(far.PostRecv(there.Sge(0, 64), i), 0);
  ASSERT_EQ(far.ToState(IBV_QPS_ERR), 0);
  for (uint64_t i = 0; i < 8; ++i) {
    const ibv_wc wc = far.Wait();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
  ASSERT_EQ(far.PostRecv(there.Sge(0, 64), 8), 0) << "receives are accepted in ERR";
  EXPECT_EQ(far.Wait().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(VerbsErrors, ConnectsAgainAfterReset) {
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 100), IBV_SEND_SIGNALED, there.address(),
                          there.rkey() ^ 0x5500),
            0);
  EXPECT_EQ(near.Wait().status, IBV_WC_REM_ACCESS_ERR);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(near.PostRecv(here.Sge(0, 64), i), 0);  // flushed
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(near.ToState(IBV_QPS_RESET), 0);
    ASSERT_EQ(far.ToState(IBV_QPS_RESET), 0);
    EXPECT_TRUE(near.IsQuiet(5)) << "completions from before the reset";
    EXPECT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 8)), EINVAL);
    EXPECT_EQ(near.PostRecv(here.Sge(0, 8)), EINVAL);
    ASSERT_EQ(near.Connect(far), 0);
    ASSERT_EQ(far.Connect(near), 0);
    for (uint32_t i = 0; i < 2 * near.cap.max_send_wr; ++i) {
      ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 3000), IBV_SEND_SIGNALED,
                              there.address(), there.rkey(), i),
                0);
      near.ExpectSuccess(i);
    }
    EXPECT_EQ(memcmp(here.data(), there.data(), 3000), 0);
    // Completions left unpolled.
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED, there.address(),
                            there.rkey(), 5),
              0);
  }
}

TEST_F(VerbsErrors, PostsThatAreRefused) {
  ibv_sge sges[64];
  for (ibv_sge& sge : sges) sge = here.Sge(0, 1);
  ibv_send_wr wrs[2] = {};
  wrs[0].opcode = IBV_WR_SEND;
  wrs[0].next = &wrs[1];
  wrs[0].num_sge = 0;
  wrs[1].opcode = IBV_WR_SEND;
  wrs[1].sg_list = sges;
  wrs[1].num_sge = static_cast<int>(near.cap.max_send_sge) + 1;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(far.PostRecv(there.Sge(0, 64)), 0);
  EXPECT_EQ(ibv_post_send(near.qp, wrs, &bad), EINVAL);
  EXPECT_EQ(bad, &wrs[1]);
  far.ExpectSuccess(2);  // the first request was posted
  EXPECT_EQ(near.PostSend(IBV_WR_BIND_MW, here.Sge(0, 1)), EINVAL) << "without a window";
  EXPECT_EQ(near.PostSend(IBV_WR_TSO, here.Sge(0, 1)), EINVAL);
  EXPECT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, near.cap.max_inline_data + 1),
                          IBV_SEND_INLINE | IBV_SEND_SIGNALED),
            EINVAL);
  ibv_recv_wr recv = {};
  recv.sg_list = sges;
  recv.num_sge = static_cast<int>(near.cap.max_recv_sge) + 1;
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_EQ(ibv_post_recv(near.qp, &recv, &bad_recv), EINVAL);
  EXPECT_EQ(bad_recv, &recv);
  recv.num_sge = 1;
  uint32_t posted = 0;
  while (posted <= near.cap.max_recv_wr && ibv_post_recv(near.qp, &recv, &bad_recv) == 0) ++posted;
  EXPECT_EQ(posted, near.cap.max_recv_wr);
  EXPECT_EQ(ibv_post_recv(near.qp, &recv, &bad_recv), ENOMEM);
}

TEST(VerbsStates, OrderOfTransitionsIsChecked) {
  Endpoint near(DeviceZero());
  Endpoint far(DeviceOne());
  EXPECT_EQ(near.ToRts(), EINVAL);
  EXPECT_EQ(near.ToRtr(far), EINVAL);
  EXPECT_EQ(near.qp->state, IBV_QPS_RESET);
  Buffer here(DeviceZero(), 4096, 1);
  EXPECT_EQ(near.PostRecv(here.Sge(0, 8)), EINVAL) << "RESET";
  ASSERT_EQ(near.ToInit(), 0);
  EXPECT_EQ(near.qp->state, IBV_QPS_INIT);
  EXPECT_EQ(near.PostRecv(here.Sge(0, 8)), 0) << "INIT";
  EXPECT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 8)), EINVAL) << "INIT";
  ASSERT_EQ(far.ToInit(), 0);
  ASSERT_EQ(near.ToRtr(far), 0);
  EXPECT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 8)), EINVAL) << "RTR";
  ASSERT_EQ(near.ToRts(), 0);
}

TEST(VerbsStates, QueriesReturnTheSetAttributes) {
  Pair pair;
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(pair.near.qp, &attr, 0x1FFFFF, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, pair.far.qp->qp_num);
  EXPECT_EQ(attr.timeout, EndpointOptions().timeout);
  EXPECT_EQ(attr.retry_cnt, 3);
  EXPECT_EQ(attr.rnr_retry, 1);
  EXPECT_EQ(attr.min_rnr_timer, 1);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.rq_psn, pair.far.qp->qp_num & 0xFFFFFF);
  EXPECT_EQ(attr.qp_access_flags,
            unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC});
  EXPECT_EQ(memcmp(&attr.ah_attr.grh.dgid, &pair.far_device.gid, 16), 0);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.send_cq, pair.near.cq);
  EXPECT_EQ(init.cap.max_send_wr, pair.near.cap.max_send_wr);
}

TEST(VerbsModify, RefusesRightsThatDoNotExist) {
  OpenDevice device("roci0");
  Endpoint endpoint(device);
  constexpr int kMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  for (const unsigned bit : {10u, 15u, 19u, 30u, 31u}) {
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | 1u << bit;
    EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kMask), EINVAL) << bit;
  }
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kMask), 0);
}

TEST(VerbsObjects, InUseCannotBeDestroyed) {
  OpenDevice device("roci0");
  ibv_pd* pd = ibv_alloc_pd(device.context);
  char data[100];
  ibv_mr* mr = ibv_reg_mr(pd, data, sizeof(data), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_cq* cq = ibv_create_cq(device.context, 10, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(VerbsObjects, RefusesInvalidRequests) {
  ibv_context* context = DeviceZero().context;
  const ibv_device_attr& attr = DeviceZero().attr;
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context, attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context, 1, nullptr, nullptr, context->num_comp_vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_cq* cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {static_cast<uint32_t>(attr.max_qp_wr) + 1, 1, 1, 1, 0};
  EXPECT_EQ(ibv_create_qp(DeviceZero().pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.cap = {1, 1, static_cast<uint32_t>(attr.max_sge) + 1, 1, 0};
  EXPECT_EQ(ibv_create_qp(DeviceZero().pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_DRIVER;
  EXPECT_EQ(ibv_create_qp(DeviceZero().pd, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(context, 0, &port), EINVAL);
}

}  // namespace
}  // namespace roci::testing
