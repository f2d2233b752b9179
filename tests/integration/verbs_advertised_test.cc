// Advertised features work, and others fail with EOPNOTSUPP: for every capability of
// ibv_query_device_ex(3), and for every call without a capability.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

class VerbsAdvertised : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ibv_query_device_ex(device.context, nullptr, &attr), 0);
    cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
  }
  void TearDown() override { EXPECT_EQ(ibv_destroy_cq(cq), 0); }

  // Checks that `make` returns an object if and only if `advertised`.
  template <class T>
  static void Check(bool advertised, const char* what, const std::function<T*()>& make,
                    const std::function<int(T*)>& destroy) {
    errno = 0;
    T* object = make();
    EXPECT_EQ(object != nullptr, advertised) << what << ": " << strerror(errno);
    if (object != nullptr) {
      EXPECT_EQ(destroy(object), 0) << what;
    } else {
      EXPECT_EQ(errno, EOPNOTSUPP) << what;
    }
  }

  // For calls without a capability: success, or EOPNOTSUPP.
  template <class T>
  static void CheckAny(const char* what, const std::function<T*()>& make,
                       const std::function<int(T*)>& destroy) {
    errno = 0;
    T* object = make();
    if (object != nullptr) {
      EXPECT_EQ(destroy(object), 0) << what;
    } else {
      EXPECT_EQ(errno, EOPNOTSUPP) << what;
    }
  }

  bool HasFlag(unsigned flag) const { return (attr.orig_attr.device_cap_flags & flag) != 0; }

  ibv_qp* MakeQp(ibv_qp_type type) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = type;
    return ibv_create_qp(device.pd, &init);
  }

  OpenDevice& device = DeviceZero();
  ibv_device_attr_ex attr = {};
  ibv_cq* cq = nullptr;
};

TEST_F(VerbsAdvertised, SharedReceiveQueues) {
  Check<ibv_srq>(
      attr.orig_attr.max_srq > 0, "ibv_create_srq",
      [&] {
        ibv_srq_init_attr init = {};
        init.attr.max_wr = init.attr.max_sge = 1;
        return ibv_create_srq(device.pd, &init);
      },
      ibv_destroy_srq);
  EXPECT_EQ(attr.orig_attr.max_srq > 0, attr.orig_attr.max_srq_wr > 0);
  EXPECT_EQ(attr.orig_attr.max_srq > 0, attr.orig_attr.max_srq_sge > 0);
}

TEST_F(VerbsAdvertised, TagMatching) {
  Check<ibv_srq>(
      attr.tm_caps.max_num_tags > 0, "ibv_create_srq_ex",
      [&] {
        ibv_srq_init_attr_ex init = {};
        init.attr.max_wr = init.attr.max_sge = 1;
        init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                         IBV_SRQ_INIT_ATTR_TM;
        init.srq_type = IBV_SRQT_TM;
        init.pd = device.pd;
        init.cq = cq;
        init.tm_cap = {1, 1};
        return ibv_create_srq_ex(device.context, &init);
      },
      ibv_destroy_srq);
}

TEST_F(VerbsAdvertised, ChecksumsOfRawPackets) {
  EXPECT_TRUE(HasFlag(IBV_DEVICE_RAW_IP_CSUM));
  EXPECT_EQ(attr.device_cap_flags_ex & 0xFFFFFFFF, attr.orig_attr.device_cap_flags);
  EXPECT_EQ(attr.raw_packet_caps, uint32_t{IBV_RAW_PACKET_CAP_IP_CSUM});
  // Not for other queue pair types.
  EXPECT_FALSE(HasFlag(IBV_DEVICE_UD_IP_CSUM | IBV_DEVICE_RC_IP_CSUM));
}

TEST_F(VerbsAdvertised, XrcDomains) {
  Check<ibv_xrcd>(
      HasFlag(IBV_DEVICE_XRC), "ibv_open_xrcd",
      [&] {
        ibv_xrcd_init_attr init = {};
        init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        init.fd = -1;
        init.oflags = O_CREAT;
        return ibv_open_xrcd(device.context, &init);
      },
      ibv_close_xrcd);
}

TEST_F(VerbsAdvertised, MemoryWindows) {
  const bool has = attr.orig_attr.max_mw > 0;
  Check<ibv_mw>(
      has, "ibv_alloc_mw of type 1", [&] { return ibv_alloc_mw(device.pd, IBV_MW_TYPE_1); },
      ibv_dealloc_mw);
  Check<ibv_mw>(
      has && HasFlag(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
      "ibv_alloc_mw of type 2", [&] { return ibv_alloc_mw(device.pd, IBV_MW_TYPE_2); },
      ibv_dealloc_mw);
}

TEST_F(VerbsAdvertised, DeviceMemory) {
  Check<ibv_dm>(
      attr.max_dm_size > 0, "ibv_alloc_dm",
      [&] {
        ibv_alloc_dm_attr init = {};
        init.length = 64;
        return ibv_alloc_dm(device.context, &init);
      },
      ibv_free_dm);
}

TEST_F(VerbsAdvertised, PagingOnDemand) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  Check<ibv_mr>((attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0, "ibv_reg_mr on demand",
                [&] {
                  // NOLINTNEXTLINE: ibv_reg_mr is a macro that looks at its flags when compiled
                  return ibv_reg_mr(device.pd, page, 4096,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
                },
                ibv_dereg_mr);
  munmap(page, 4096);
}

TEST_F(VerbsAdvertised, WorkQueues) {
  Check<ibv_wq>(
      attr.max_wq_type_rq > 0, "ibv_create_wq",
      [&] {
        ibv_wq_init_attr init = {};
        init.wq_type = IBV_WQT_RQ;
        init.max_wr = init.max_sge = 1;
        init.pd = device.pd;
        init.cq = cq;
        return ibv_create_wq(device.context, &init);
      },
      ibv_destroy_wq);
}

TEST_F(VerbsAdvertised, MulticastGroups) {
  ibv_qp* qp = MakeQp(IBV_QPT_UD);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr init = {};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            0);
  ibv_gid group = {};
  group.raw[10] = group.raw[11] = 0xFF;
  group.raw[12] = 239;
  const bool has = attr.orig_attr.max_mcast_grp > 0;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), has ? 0 : EOPNOTSUPP);
  EXPECT_TRUE(!has || ibv_detach_mcast(qp, &group, 0) == 0);
  EXPECT_EQ(has, attr.orig_attr.max_mcast_qp_attach > 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(VerbsAdvertised, ModerationAndTimestamps) {
  ibv_modify_cq_attr modify = {};
  modify.attr_mask = IBV_CQ_ATTR_MODERATE;
  EXPECT_EQ(ibv_modify_cq(cq, &modify), attr.cq_mod_caps.max_cq_count > 0 ? 0 : EOPNOTSUPP);
  Check<ibv_cq>(
      attr.completion_timestamp_mask != 0, "a CQ with timestamps",
      [&] {
        ibv_cq_init_attr_ex init = {};
        init.cqe = 1;
        init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        ibv_cq_ex* extended = ibv_create_cq_ex(device.context, &init);
        return extended != nullptr ? ibv_cq_ex_to_cq(extended) : nullptr;
      },
      ibv_destroy_cq);
}

TEST_F(VerbsAdvertised, CallsWithoutACapabilityWorkOrAreNotSupported) {
  CheckAny<ibv_mr>(
      "ibv_alloc_null_mr", [&] { return ibv_alloc_null_mr(device.pd); }, ibv_dereg_mr);
  CheckAny<ibv_counters>(
      "ibv_create_counters",
      [&] {
        ibv_counters_init_attr init = {};
        return ibv_create_counters(device.context, &init);
      },
      ibv_destroy_counters);
  CheckAny<ibv_qp>(
      "a raw packet QP", [&] { return MakeQp(IBV_QPT_RAW_PACKET); }, ibv_destroy_qp);
  CheckAny<ibv_flow_action>(
      "ibv_create_flow_action_esp",
      [&] {
        ibv_flow_action_esp_attr init = {};
        return ibv_create_flow_action_esp(device.context, &init);
      },
      ibv_destroy_flow_action);
  errno = 0;
  EXPECT_EQ(MakeQp(IBV_QPT_DRIVER), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// The access rights of FLUSH, from newer headers: one for global visibility, one for persistence,
// which this memory does not have (verbs_flush_test.cc has memory that does).
TEST_F(VerbsAdvertised, OrdinaryRegionsAreNotPersistent) {
  constexpr int kFlushGlobal = 1 << 8;
  constexpr int kFlushPersistent = 1 << 9;
  constexpr uint64_t kDevicePersistent = uint64_t{1} << 39;
  EXPECT_NE(attr.device_cap_flags_ex & kDevicePersistent, 0U);
  Buffer buffer(device, 4096, 1);
  const auto make = [&](int access) {
    return ibv_reg_mr(device.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE | access);
  };
  ibv_mr* mr = make(kFlushGlobal);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  for (const int access : {kFlushPersistent, kFlushPersistent | kFlushGlobal}) {
    errno = 0;
    EXPECT_EQ(make(access), nullptr);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_NE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           IBV_ACCESS_LOCAL_WRITE | access),
              0);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// (dma_buffers_test.cc tests DMA buffers if the kernel has them.)
TEST_F(VerbsAdvertised, DescriptorsOtherThanDmaBuffersAreRefused) {
  const int memory = memfd_create("no-dmabuf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memory, 4096), 0);
  const auto make = [&](int fd, int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dmabuf_mr(device.pd, 0, 4096, 0, fd, access), nullptr);
    return errno;
  };
  EXPECT_EQ(make(memory, IBV_ACCESS_LOCAL_WRITE), EINVAL);
  EXPECT_EQ(make(memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(make(-1, IBV_ACCESS_LOCAL_WRITE), EBADF);
  close(memory);
  EXPECT_EQ(make(memory, IBV_ACCESS_LOCAL_WRITE), EBADF);
}

TEST_F(VerbsAdvertised, OperationsOfExtendedQueuePairs) {
  // Each operation alone is supported, or refused.
  for (int bit = 0; bit < 14; ++bit) {
    ibv_qp_init_attr_ex init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = device.pd;
    init.send_ops_flags = uint64_t{1} << bit;
    CheckAny<ibv_qp>(
        "an extended QP", [&] { return ibv_create_qp_ex(device.context, &init); }, ibv_destroy_qp);
  }
}

}  // namespace
}  // namespace roci::testing
