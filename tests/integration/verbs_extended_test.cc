// The newer interfaces of libibverbs: ibv_wr_*, extended CQs, parent domains, imported contexts.
#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uint64_t kRcOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

ibv_qp_init_attr_ex InitAttr(Endpoint& endpoint, uint64_t operations) {
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = endpoint.cq;
  init.cap = endpoint.cap;
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = endpoint.device.pd;
  init.send_ops_flags = operations;
  return init;
}

class VerbsWorkRequests : public ::testing::Test {
 protected:
  VerbsWorkRequests() {
    EXPECT_EQ(ibv_destroy_qp(near.qp), 0);
    ibv_qp_init_attr_ex init = InitAttr(near, kRcOperations);
    near.qp = ibv_create_qp_ex(near.device.context, &init);
    if (near.qp == nullptr) {
      ADD_FAILURE() << strerror(errno);
      std::abort();
    }
    qp = ibv_qp_to_qp_ex(near.qp);
    EXPECT_EQ(near.Connect(far), 0);
    EXPECT_EQ(far.Connect(near), 0);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
  }

  Endpoint near{DeviceZero()};
  Endpoint far{DeviceOne()};
  ibv_qp_ex* qp = nullptr;
  Buffer here{DeviceZero(), 65536, 1};
  Buffer there{DeviceOne(), 65536, 2};
};

TEST_F(VerbsWorkRequests, PostSeveralAtOnce) {
  ASSERT_EQ(far.PostRecv(there.Sge(60000, 100), 7), 0);
  ASSERT_EQ(far.PostRecv(there.Sge(0, 0), 8), 0);
  const ibv_sge two[] = {here.Sge(0, 3000), here.Sge(10000, 2000)};
  char text[] = "inline";
  ibv_wr_start(qp);
  qp->wr_id = 11;
  ibv_wr_rdma_write(qp, there.rkey(), there.address());
  ibv_wr_set_sge_list(qp, 2, two);
  qp->wr_id = 12;
  ibv_wr_send_imm(qp, htonl(55));
  const ibv_data_buf pieces[] = {{text, 2}, {text + 2, 4}};
  ibv_wr_set_inline_data_list(qp, 2, pieces);
  qp->wr_id = 13;
  ibv_wr_rdma_write_imm(qp, there.rkey(), there.address() + 20000, htonl(56));
  ibv_wr_set_sge(qp, here.lkey(), here.address() + 20000, 64);
  qp->wr_id = 14;
  ibv_wr_rdma_read(qp, there.rkey(), there.address() + 30000);
  ibv_wr_set_sge(qp, here.lkey(), here.address() + 30000, 5000);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  memset(text, 0, sizeof(text));
  for (uint64_t wr_id = 11; wr_id <= 14; ++wr_id) near.ExpectSuccess(wr_id);
  ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.byte_len, 6u);
  EXPECT_EQ(ntohl(wc.imm_data), 55u);
  wc = far.Wait();
  EXPECT_EQ(wc.wr_id, 8u);
  EXPECT_EQ(ntohl(wc.imm_data), 56u);
  EXPECT_EQ(memcmp(there.data(), here.data(), 3000), 0);
  EXPECT_EQ(memcmp(there.data() + 3000, here.data() + 10000, 2000), 0);
  EXPECT_EQ(memcmp(there.data() + 60000, "inline", 6), 0);
  EXPECT_EQ(memcmp(there.data() + 20000, here.data() + 20000, 64), 0);
  EXPECT_EQ(memcmp(there.data() + 30000, here.data() + 30000, 5000), 0);
}

TEST_F(VerbsWorkRequests, DoAtomics) {
  auto* target = reinterpret_cast<uint64_t*>(there.data());
  auto* result = reinterpret_cast<uint64_t*>(here.data());
  *target = 5;
  ibv_wr_start(qp);
  ibv_wr_atomic_fetch_add(qp, there.rkey(), there.address(), 3);
  ibv_wr_set_sge(qp, here.lkey(), here.address(), 8);
  ibv_wr_atomic_cmp_swp(qp, there.rkey(), there.address(), 8, 100);
  ibv_wr_set_sge(qp, here.lkey(), here.address() + 8, 8);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  near.ExpectSuccess();
  near.ExpectSuccess();
  EXPECT_EQ(result[0], 5u);
  EXPECT_EQ(result[1], 8u);
  EXPECT_EQ(*target, 100u);
}

TEST_F(VerbsWorkRequests, AbortPostsNothing) {
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, there.rkey(), there.address());
  ibv_wr_set_sge(qp, here.lkey(), here.address(), 100);
  ibv_wr_abort(qp);
  EXPECT_TRUE(near.IsQuiet(5));
  EXPECT_EQ(there.data()[0], PatternByte(2, 0));
  ibv_wr_start(qp);
  ASSERT_EQ(ibv_wr_complete(qp), 0) << "nothing to post";
  EXPECT_TRUE(near.IsQuiet(5));
}

TEST_F(VerbsWorkRequests, FailAsAWhole) {
  std::vector<ibv_sge> many(near.cap.max_send_sge + 1, here.Sge(0, 1));
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, there.rkey(), there.address());
  ibv_wr_set_sge(qp, here.lkey(), here.address(), 100);
  ibv_wr_rdma_write(qp, there.rkey(), there.address());
  ibv_wr_set_sge_list(qp, many.size(), many.data());
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  std::vector<char> data(near.cap.max_inline_data + 1);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_inline_data(qp, data.data(), data.size());
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  for (uint32_t i = 0; i <= near.cap.max_send_wr; ++i) {
    ibv_wr_rdma_write(qp, there.rkey(), there.address());
  }
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
  EXPECT_TRUE(near.IsQuiet(5));
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, there.rkey(), there.address());
  ibv_wr_set_sge(qp, here.lkey(), here.address(), 100);
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  near.ExpectSuccess();
}

TEST(VerbsExtendedQp, RefusesUnsupportedOperations) {
  Endpoint endpoint(DeviceZero());
  ibv_qp_init_attr_ex init = InitAttr(endpoint, kRcOperations | IBV_QP_EX_WITH_TSO);
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(DeviceZero().context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init = InitAttr(endpoint, 0);
  init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(DeviceZero().context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_qp_to_qp_ex(endpoint.qp), nullptr) << "an ordinary QP";
}

TEST(VerbsExtendedCq, ReportsTheRequestedFields) {
  Endpoint far(DeviceOne());
  Endpoint near(DeviceZero());
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 64;
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM |
                  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(DeviceZero().context, &attr);
  ASSERT_NE(cq, nullptr);
  ASSERT_TRUE(near.ReplaceCq(ibv_cq_ex_to_cq(cq)));
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  Buffer here(DeviceZero(), 4096, 1);
  Buffer there(DeviceOne(), 4096, 2);

  ibv_poll_cq_attr poll = {};
  EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
  ibv_values_ex before = {};
  before.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(DeviceZero().context, &before), 0);
  ASSERT_EQ(near.PostRecv(here.Sge(0, 4096), 3), 0);
  ASSERT_EQ(near.PostRecv(here.Sge(0, 4096), 4), 0);
  ASSERT_EQ(far.PostSend(IBV_WR_SEND, there.Sge(0, 100)), 0);
  ASSERT_EQ(far.PostSend(IBV_WR_SEND, there.Sge(0, 200)), 0);
  far.ExpectSuccess();
  far.ExpectSuccess();
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(cq->wr_id, 3u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 100u);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), near.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), 0u);
  const uint64_t timestamp = ibv_wc_read_completion_ts(cq);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 4u);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 200u);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
  ibv_values_ex after = {};
  after.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(DeviceZero().context, &after), 0);
  // The daemon reads its clock once per burst.
  constexpr uint64_t kSlack_ns = 10'000'000;
  EXPECT_GE(timestamp + kSlack_ns, static_cast<uint64_t>(before.raw_clock.tv_nsec));
  EXPECT_LE(timestamp, static_cast<uint64_t>(after.raw_clock.tv_nsec) + kSlack_ns);
}

TEST(VerbsExtendedCq, RefusesUnsupportedFields) {
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 1;
  attr.wc_flags = uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK} << 1;  // a newer flag
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(DeviceZero().context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(VerbsParentDomain, ReplacesItsProtectionDomain) {
  OpenDevice device("roci0");
  ibv_td_init_attr td_attr = {};
  ibv_td* td = ibv_alloc_td(device.context, &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr = {};
  attr.td = td;
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(device.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* pd = ibv_alloc_pd(device.context);
  attr.pd = pd;
  ibv_pd* domain = ibv_alloc_parent_domain(device.context, &attr);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  char data[64];
  ibv_mr* mr = ibv_reg_mr(domain, data, sizeof(data), 0);
  EXPECT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST(VerbsImport, SharesObjectsOfAnOpenDevice) {
  auto original = std::make_unique<OpenDevice>("roci1");
  Buffer buffer(*original, 4096, 1);
  ibv_context* imported = ibv_import_device(dup(original->context->cmd_fd));
  ASSERT_NE(imported, nullptr) << strerror(errno);
  EXPECT_STREQ(ibv_get_device_name(imported->device), "roci1");
  ibv_pd* pd = ibv_import_pd(imported, original->pd->handle);
  ASSERT_NE(pd, nullptr);
  ibv_mr* mr = ibv_import_mr(pd, buffer.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, buffer.lkey());
  EXPECT_EQ(mr->rkey, buffer.rkey());
  EXPECT_EQ(mr->length, buffer.size());
  errno = 0;
  EXPECT_EQ(ibv_import_mr(pd, 0xFFFFFF), nullptr);
  ibv_mr* own = ibv_reg_mr(pd, buffer.data(), 100, 0);
  EXPECT_NE(own, nullptr) << "an imported PD is usable";
  EXPECT_EQ(ibv_dereg_mr(own), 0);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(imported), 0);
  // The original still works.
  ibv_device_attr attr;
  EXPECT_EQ(ibv_query_device(original->context, &attr), 0);
  EXPECT_EQ(ibv_dereg_mr(buffer.mr), 0);
  buffer.mr = nullptr;
  const int fd = dup(STDIN_FILENO);
  EXPECT_EQ(ibv_import_device(fd), nullptr);
  close(fd);
}

}  // namespace
}  // namespace roci::testing
