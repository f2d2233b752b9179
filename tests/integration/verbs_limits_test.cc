// Reaches every limit that the device advertises, and tries one more. Needs a daemon with the
// limits of limits.toml.
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

// Devices have no objects when a test starts; DeviceZero's PD would count.
class VerbsLimits : public ::testing::Test {
 protected:
  // Creates objects until that fails, which must be after `limit` objects and with ENOMEM. Then
  // destroying one makes room for another. `used` objects exist already.
  template <class T>
  static void Fill(int limit, int used, const std::function<T*()>& make,
                   const std::function<int(T*)>& destroy) {
    ASSERT_GT(limit, used);
    std::vector<T*> made;
    errno = 0;
    while (T* object = make()) {
      made.push_back(object);
      ASSERT_LE(made.size(), static_cast<size_t>(limit));
    }
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(made.size(), static_cast<size_t>(limit - used));
    EXPECT_EQ(destroy(made.back()), 0);
    made.back() = make();
    EXPECT_NE(made.back(), nullptr) << "room for one object again";
    errno = 0;
    EXPECT_EQ(make(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    for (T* object : made) {
      EXPECT_TRUE(object == nullptr || destroy(object) == 0);
    }
  }

  ibv_cq* MakeCq(int entries = 8) {
    return ibv_create_cq(device.context, entries, nullptr, nullptr, 0);
  }

  ibv_qp* MakeQp(ibv_cq* cq, const ibv_qp_cap& cap = {4, 4, 1, 1, 0}) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = cap;
    init.qp_type = IBV_QPT_RC;
    return ibv_create_qp(device.pd, &init);
  }

  void ExpectNoQp(ibv_cq* cq, const ibv_qp_cap& cap, int error) {
    errno = 0;
    ibv_qp* qp = MakeQp(cq, cap);
    EXPECT_EQ(qp, nullptr);
    EXPECT_EQ(errno, error);
    if (qp != nullptr) ibv_destroy_qp(qp);
  }

  OpenDevice device{"roci0"};  // with one PD
};

TEST_F(VerbsLimits, ProtectionDomains) {
  Fill<ibv_pd>(
      device.attr.max_pd, 1, [&] { return ibv_alloc_pd(device.context); }, ibv_dealloc_pd);
}

TEST_F(VerbsLimits, CountAllProgramsThatHaveTheDeviceOpen) {
  OpenDevice second("roci0");
  OpenDevice other("roci1");
  Fill<ibv_pd>(
      device.attr.max_pd, 2, [&] { return ibv_alloc_pd(device.context); }, ibv_dealloc_pd);
  Fill<ibv_pd>(
      other.attr.max_pd, 1, [&] { return ibv_alloc_pd(other.context); }, ibv_dealloc_pd);
}

TEST_F(VerbsLimits, CompletionQueues) {
  Fill<ibv_cq>(
      device.attr.max_cq, 0, [&] { return MakeCq(); }, ibv_destroy_cq);
}

TEST_F(VerbsLimits, QueuePairs) {
  ibv_cq* cq = MakeCq();
  ASSERT_NE(cq, nullptr);
  Fill<ibv_qp>(
      device.attr.max_qp, 0, [&] { return MakeQp(cq); }, ibv_destroy_qp);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsLimits, MemoryRegions) {
  char data[64];
  Fill<ibv_mr>(
      device.attr.max_mr, 0, [&] { return ibv_reg_mr(device.pd, data, sizeof(data), 0); },
      ibv_dereg_mr);
}

TEST_F(VerbsLimits, AddressHandles) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.grh.dgid = device.gid;
  attr.grh.sgid_index = static_cast<uint8_t>(device.gid_index);
  attr.grh.hop_limit = 64;
  attr.port_num = 1;
  Fill<ibv_ah>(
      device.attr.max_ah, 0, [&] { return ibv_create_ah(device.pd, &attr); }, ibv_destroy_ah);
}

TEST_F(VerbsLimits, SizesOfQueues) {
  ibv_cq* cq = MakeCq(device.attr.max_cqe);
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, device.attr.max_cqe);
  EXPECT_EQ(ibv_resize_cq(cq, device.attr.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, 1), 0);
  EXPECT_EQ(ibv_resize_cq(cq, device.attr.max_cqe), 0);
  errno = 0;
  EXPECT_EQ(MakeCq(device.attr.max_cqe + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);

  const auto max_wr = static_cast<uint32_t>(device.attr.max_qp_wr);
  const auto max_sge = static_cast<uint32_t>(device.attr.max_sge);
  ibv_qp* qp = MakeQp(cq, {max_wr, max_wr, max_sge, max_sge, 0});
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  ExpectNoQp(cq, {max_wr + 1, 1, 1, 1, 0}, EINVAL);
  ExpectNoQp(cq, {1, max_wr + 1, 1, 1, 0}, EINVAL);
  ExpectNoQp(cq, {1, 1, max_sge + 1, 1, 0}, EINVAL);
  ExpectNoQp(cq, {1, 1, 1, max_sge + 1, 0}, EINVAL);
  ExpectNoQp(cq, {1, 1, 1, 1, 1 << 20}, EINVAL);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsLimits, AsManyRequestsAndElementsAsGranted) {
  EndpointOptions options;
  options.max_send_wr = options.max_recv_wr = static_cast<uint32_t>(device.attr.max_qp_wr);
  options.max_sge = static_cast<uint32_t>(device.attr.max_sge);
  options.cq_entries = device.attr.max_cqe;
  Endpoint near(device, options);
  OpenDevice far_device("roci1");
  Endpoint far(far_device, options);
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  Buffer here(device, 4096, 1);
  Buffer there(far_device, 4096, 2);
  std::vector<ibv_sge> sges;
  for (uint32_t i = 0; i < options.max_sge; ++i) sges.push_back(there.Sge(i * 100, 100));
  ibv_recv_wr recv = {};
  recv.sg_list = sges.data();
  recv.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad_recv = nullptr;
  for (uint32_t i = 0; i < far.cap.max_recv_wr; ++i) {
    ASSERT_EQ(ibv_post_recv(far.qp, &recv, &bad_recv), 0);
  }
  EXPECT_EQ(ibv_post_recv(far.qp, &recv, &bad_recv), ENOMEM);
  std::vector<ibv_sge> from;
  for (uint32_t i = 0; i < options.max_sge; ++i) from.push_back(here.Sge(i * 100, 100));
  ibv_send_wr send = {};
  send.opcode = IBV_WR_SEND;
  send.sg_list = from.data();
  send.num_sge = static_cast<int>(from.size());
  ibv_send_wr* bad = nullptr;
  // Not signaled, so no slot is freed, even if the device is fast.
  for (uint32_t i = 0; i < near.cap.max_send_wr; ++i) {
    send.send_flags = i + 1 == near.cap.max_send_wr ? unsigned{IBV_SEND_SIGNALED} : 0;
    ASSERT_EQ(ibv_post_send(near.qp, &send, &bad), 0) << i;
  }
  EXPECT_EQ(ibv_post_send(near.qp, &send, &bad), ENOMEM);
  near.ExpectSuccess(0);
  for (uint32_t i = 0; i < far.cap.max_recv_wr; ++i) far.ExpectSuccess(0);
  EXPECT_EQ(memcmp(here.data(), there.data(), size_t{options.max_sge} * 100), 0);
  EXPECT_EQ(ibv_post_send(near.qp, &send, &bad), 0) << "room again";
}

TEST_F(VerbsLimits, OutstandingReadsAndAtomics) {
  OpenDevice far_device("roci1");
  Endpoint near(device);
  Endpoint far(far_device);
  ASSERT_EQ(near.ToInit(), 0);
  ASSERT_EQ(far.ToInit(), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = far.qp->qp_num;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = far_device.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device.attr.max_qp_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(near.qp, &attr, kToRtr), EINVAL);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(device.attr.max_qp_rd_atom);
  EXPECT_EQ(ibv_modify_qp(near.qp, &attr, kToRtr), 0);
  attr.qp_state = IBV_QPS_RTS;
  constexpr int kToRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  attr.max_rd_atomic = static_cast<uint8_t>(device.attr.max_qp_init_rd_atom + 1);
  EXPECT_EQ(ibv_modify_qp(near.qp, &attr, kToRts), EINVAL);
  attr.max_rd_atomic = static_cast<uint8_t>(device.attr.max_qp_init_rd_atom);
  EXPECT_EQ(ibv_modify_qp(near.qp, &attr, kToRts), 0);
}

TEST_F(VerbsLimits, IndicesBeyondTheirTables) {
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(device.context, 1, device.port.gid_tbl_len - 1, &gid), 0);
  EXPECT_NE(ibv_query_gid(device.context, 1, device.port.gid_tbl_len, &gid), 0);
  __be16 pkey;
  EXPECT_EQ(ibv_query_pkey(device.context, 1, device.port.pkey_tbl_len - 1, &pkey), 0);
  EXPECT_NE(ibv_query_pkey(device.context, 1, device.port.pkey_tbl_len, &pkey), 0);
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(device.context, device.attr.phys_port_cnt, &port), 0);
  EXPECT_EQ(
      ibv_query_port(device.context, static_cast<uint8_t>(device.attr.phys_port_cnt + 1), &port),
      EINVAL);
  Endpoint endpoint(device);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  constexpr int kToInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  attr.port_num = 1;
  attr.pkey_index = device.port.pkey_tbl_len;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kToInit), EINVAL);
  attr.pkey_index = 0;
  attr.port_num = static_cast<uint8_t>(device.attr.phys_port_cnt + 1);
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kToInit), EINVAL);
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kToInit & ~IBV_QP_PORT), EINVAL) << "one missing";
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kToInit | IBV_QP_AV), EINVAL) << "one too many";
  EXPECT_EQ(ibv_modify_qp(endpoint.qp, &attr, kToInit), 0);
  ibv_ah_attr ah = {};
  ah.is_global = 1;
  ah.grh.dgid = device.gid;
  ah.port_num = 1;
  ah.grh.sgid_index = static_cast<uint8_t>(device.port.gid_tbl_len);
  errno = 0;
  EXPECT_EQ(ibv_create_ah(device.pd, &ah), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsLimits, MessageLengthOfThePort) {
  OpenDevice far_device("roci1");
  Endpoint near(device);
  Endpoint far(far_device);
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  // Two elements over the same memory, never touched.
  const size_t size = size_t{device.port.max_msg_sz} / 2;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_mr* mr = ibv_reg_mr(device.pd, memory, size, 0);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto half = static_cast<uint32_t>(size);
  ibv_sge sges[] = {{address, half, mr->lkey}, {address, half, mr->lkey}, {address, 1, mr->lkey}};
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sges;
  wr.num_sge = 3;
  ASSERT_EQ(near.Post(wr), 0);
  const ibv_wc wc = near.Wait();
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(memory, size);
}

TEST_F(VerbsLimits, ObjectsInUseAreNotDestroyed) {
  ibv_comp_channel* channel = ibv_create_comp_channel(device.context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(device.context, 1, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  ibv_qp* qp = MakeQp(cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  ibv_pd* pd = ibv_alloc_pd(device.context);
  ASSERT_NE(pd, nullptr);
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.grh.dgid = device.gid;
  attr.grh.sgid_index = static_cast<uint8_t>(device.gid_index);
  attr.port_num = 1;
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  errno = 0;
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(errno, EBUSY) << "same as for a call to the kernel";
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsLimits, InvalidHandles) {
  errno = 0;
  EXPECT_EQ(ibv_import_mr(device.pd, 0x7FFFFFFF), nullptr);
  EXPECT_EQ(errno, ENOENT);
  errno = 0;
  EXPECT_EQ(ibv_import_pd(device.context, 0x7FFFFFFF), nullptr);
  EXPECT_EQ(errno, ENOENT);
  OpenDevice other("roci0");
  ibv_cq* foreign = ibv_create_cq(other.context, 1, nullptr, nullptr, 0);
  ASSERT_NE(foreign, nullptr);
  ExpectNoQp(foreign, {1, 1, 1, 1, 0}, EINVAL);
  EXPECT_EQ(ibv_destroy_cq(foreign), 0);
}

}  // namespace
}  // namespace roci::testing
