// Parent domains with allocators, thread domains, and attributes of completion queues.
#include <infiniband/verbs.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

// Memory handed out by a program's allocator.
struct Ledger {
  std::map<void*, uint64_t> given;  // by address: resource type
  int allocations = 0;
  bool use_default = false;
  bool refuse = false;
};

void* AllocateFrom(ibv_pd*, void* context, size_t size, size_t alignment, uint64_t type) {
  auto* ledger = static_cast<Ledger*>(context);
  ++ledger->allocations;
  if (ledger->use_default) return IBV_ALLOCATOR_USE_DEFAULT;
  void* memory = nullptr;
  if (ledger->refuse || posix_memalign(&memory, alignment, size) != 0) return nullptr;
  memset(memory, 0xEE, size);
  ledger->given[memory] = type;
  return memory;
}

void ReleaseTo(ibv_pd*, void* context, void* memory, uint64_t type) {
  auto* ledger = static_cast<Ledger*>(context);
  const auto found = ledger->given.find(memory);
  ASSERT_NE(found, ledger->given.end());
  EXPECT_EQ(found->second, type);
  ledger->given.erase(found);
  free(memory);
}

ibv_pd* MakeDomain(OpenDevice& device, Ledger* ledger, ibv_td* td = nullptr) {
  ibv_parent_domain_init_attr attr = {};
  attr.pd = device.pd;
  attr.td = td;
  if (ledger != nullptr) {
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = AllocateFrom;
    attr.free = ReleaseTo;
    attr.pd_context = ledger;
  }
  return ibv_alloc_parent_domain(device.context, &attr);
}

ibv_cq_ex* MakeCq(ibv_context* context, ibv_pd* domain, uint32_t flags, uint32_t cqe = 64) {
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = cqe;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = flags;
  if (domain != nullptr) {
    attr.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = domain;
  }
  return ibv_create_cq_ex(context, &attr);
}

// Replaces CQ and QP of `endpoint` by ones created in `domain`.
void Rebuild(Endpoint& endpoint, ibv_pd* domain, uint32_t cq_flags) {
  ASSERT_EQ(ibv_destroy_qp(endpoint.qp), 0);
  ASSERT_EQ(ibv_destroy_cq(endpoint.cq), 0);
  ibv_cq_ex* cq = MakeCq(endpoint.device.context, domain, cq_flags);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  endpoint.cq = ibv_cq_ex_to_cq(cq);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = endpoint.cq;
  init.cap = endpoint.cap;
  init.qp_type = IBV_QPT_RC;
  endpoint.qp = ibv_create_qp(domain, &init);
  ASSERT_NE(endpoint.qp, nullptr) << strerror(errno);
}

void Destroy(Endpoint& endpoint) {
  ASSERT_EQ(ibv_destroy_qp(endpoint.qp), 0);
  ASSERT_EQ(ibv_destroy_cq(endpoint.cq), 0);
  endpoint.qp = nullptr;
  endpoint.cq = nullptr;
}

void ExpectTraffic(Endpoint& near, Endpoint& far) {
  Buffer here(near.device, 4096, 1);
  Buffer there(far.device, 4096, 2);
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 4096), IBV_SEND_SIGNALED,
                            there.address(), there.rkey(), i),
              0);
    near.ExpectSuccess(i);
  }
  EXPECT_EQ(memcmp(here.data(), there.data(), 4096), 0);
}

TEST(VerbsParentDomain, UsesTheProgramsAllocator) {
  Ledger ledger;
  ibv_pd* domain = MakeDomain(DeviceZero(), &ledger);
  ASSERT_NE(domain, nullptr) << strerror(errno);
  Endpoint near(DeviceZero());
  Endpoint far(DeviceOne());
  Rebuild(near, domain, 0);
  EXPECT_EQ(ledger.given.size(), 2u) << "a CQ and a QP";
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  ExpectTraffic(near, far);
  Destroy(near);
  EXPECT_TRUE(ledger.given.empty());
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST(VerbsParentDomain, AnAllocatorMayUseTheDefault) {
  Ledger ledger;
  ledger.use_default = true;
  ibv_pd* domain = MakeDomain(DeviceZero(), &ledger);
  ASSERT_NE(domain, nullptr);
  ibv_cq_ex* cq = MakeCq(DeviceZero().context, domain, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ledger.allocations, 1);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  ledger.use_default = false;
  ledger.refuse = true;
  errno = 0;
  EXPECT_EQ(MakeCq(DeviceZero().context, domain, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST(VerbsParentDomain, IsNotFreedBeforeItsObjects) {
  ibv_pd* domain = MakeDomain(DeviceZero(), nullptr);
  ASSERT_NE(domain, nullptr);
  std::vector<char> memory(8192);
  ibv_mr* mr = ibv_reg_mr(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  // Switches to another domain and back.
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, DeviceZero().pd, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, domain, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  mr = ibv_alloc_null_mr(domain);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_mw* mw = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr.max_wr = 1;
  srq_attr.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(domain, &srq_attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_ah_attr ah_attr = {};
  ah_attr.port_num = 1;
  ah_attr.is_global = 1;
  ASSERT_EQ(ibv_query_gid(DeviceZero().context, 1, 0, &ah_attr.grh.dgid), 0);
  ibv_ah* ah = ibv_create_ah(domain, &ah_attr);
  ASSERT_NE(ah, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST(VerbsParentDomain, RefusesInvalidRequests) {
  ibv_parent_domain_init_attr attr = {};
  attr.pd = DeviceZero().pd;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(DeviceZero().context, &attr), nullptr) << "no functions";
  EXPECT_EQ(errno, EINVAL);
  attr.comp_mask = 1u << 30;
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(DeviceZero().context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(MakeCq(DeviceZero().context, DeviceZero().pd, 0), nullptr) << "not a parent domain";
  EXPECT_EQ(errno, EINVAL);
}

TEST(VerbsThreadDomain, ItsObjectsWork) {
  ibv_td_init_attr td_attr = {};
  ibv_td* td = ibv_alloc_td(DeviceZero().context, &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_pd* domain = MakeDomain(DeviceZero(), nullptr, td);
  ASSERT_NE(domain, nullptr);
  Endpoint near(DeviceZero());
  Endpoint far(DeviceOne());
  Rebuild(near, domain, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  ExpectTraffic(near, far);
  Destroy(near);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST(VerbsExtendedCq, DropsCompletionsBeyondItsSizeIfAllowed) {
  Endpoint near(DeviceZero());
  Endpoint far(DeviceOne());
  ibv_cq_ex* cq = MakeCq(DeviceZero().context, nullptr, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 4);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  ASSERT_TRUE(near.ReplaceCq(ibv_cq_ex_to_cq(cq)));
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  Buffer here(DeviceZero(), 4096, 1);
  Buffer there(DeviceOne(), 4096, 2);
  const auto write = [&](uint64_t id) {
    return near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED, there.address(),
                         there.rkey(), id);
  };
  const auto capacity = static_cast<uint64_t>(near.cq->cqe);
  for (uint64_t id = 0; id < 3 * capacity; ++id) ASSERT_EQ(write(id), 0);
  // A receive at the far end shows that all earlier requests are done.
  ASSERT_EQ(far.PostRecv(there.Sge(0, 64)), 0);
  ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, 8)), 0);
  far.ExpectSuccess(2);
  usleep(20'000);  // for the last acknowledgement
  for (uint64_t id = 0; id < capacity; ++id) near.ExpectSuccess(id);
  EXPECT_TRUE(near.IsQuiet(5));
  ASSERT_EQ(write(999), 0);
  near.ExpectSuccess(999);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr unused = {};
  ASSERT_EQ(ibv_query_qp(near.qp, &attr, IBV_QP_STATE, &unused), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
}

uint64_t Now(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

TEST(VerbsExtendedCq, ReportsWallClockTime) {
  Endpoint near(DeviceZero());
  Endpoint far(DeviceOne());
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 4;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* cq = ibv_create_cq_ex(DeviceZero().context, &attr);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  ASSERT_TRUE(near.ReplaceCq(ibv_cq_ex_to_cq(cq)));
  ASSERT_EQ(near.Connect(far), 0);
  ASSERT_EQ(far.Connect(near), 0);
  Buffer here(DeviceZero(), 64, 1);
  Buffer there(DeviceOne(), 64, 2);
  const uint64_t before = Now(CLOCK_REALTIME);
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED, there.address(),
                          there.rkey()),
            0);
  ibv_poll_cq_attr poll = {};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
  int result = ENOENT;
  while (result == ENOENT && std::chrono::steady_clock::now() < end) {
    result = ibv_start_poll(cq, &poll);
  }
  ASSERT_EQ(result, 0);
  const uint64_t stamp = ibv_wc_read_completion_wallclock_ns(cq);
  ibv_end_poll(cq);
  constexpr uint64_t kSlack_ns = 10'000'000;  // the daemon reads its clock once per burst
  EXPECT_GE(stamp + kSlack_ns, before);
  EXPECT_LE(stamp, Now(CLOCK_REALTIME) + kSlack_ns);
}

class VerbsModeration : public ::testing::Test {
 protected:
  static EndpointOptions WithChannel() {
    EndpointOptions options;
    options.with_channel = true;
    return options;
  }

  void SetUp() override {
    ASSERT_EQ(near.Connect(far), 0);
    ASSERT_EQ(far.Connect(near), 0);
  }
  // The event is acknowledged in Drain.
  void TearDown() override { Drain(); }

  static int Moderate(ibv_cq* cq, uint16_t count, uint16_t period_us) {
    ibv_modify_cq_attr attr = {};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {count, period_us};
    return ibv_modify_cq(cq, &attr);
  }
  void Write() {
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED, there.address(),
                            there.rkey()),
              0);
  }
  bool HasEvent(int timeout_ms) const {
    pollfd fd = {near.channel->fd, POLLIN, 0};
    return ::poll(&fd, 1, timeout_ms) == 1;
  }
  void Drain() {
    ibv_wc wc;
    while (ibv_poll_cq(near.cq, 1, &wc) > 0) {
    }
    while (HasEvent(0)) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ASSERT_EQ(ibv_get_cq_event(near.channel, &cq, &context), 0);
      ibv_ack_cq_events(cq, 1);
    }
  }

  Endpoint near{DeviceZero(), WithChannel()};
  Endpoint far{DeviceOne()};
  Buffer here{DeviceZero(), 64, 1};
  Buffer there{DeviceOne(), 64, 2};
};

TEST_F(VerbsModeration, WaitsForTheCount) {
  ASSERT_EQ(Moderate(near.cq, 3, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(near.cq, 0), 0);
  Write();
  Write();
  EXPECT_FALSE(HasEvent(50));
  Write();
  EXPECT_TRUE(HasEvent(kPatience_ms));
}

TEST_F(VerbsModeration, WaitsForThePeriodAndNoLonger) {
  ASSERT_EQ(Moderate(near.cq, 1000, 60'000), 0);
  ASSERT_EQ(ibv_req_notify_cq(near.cq, 0), 0);
  const uint64_t begin = Now(CLOCK_MONOTONIC);
  Write();
  EXPECT_TRUE(HasEvent(kPatience_ms));
  EXPECT_GE(Now(CLOCK_MONOTONIC) - begin, 50'000'000u);
}

TEST_F(VerbsModeration, EndsWithTheModeration) {
  ASSERT_EQ(Moderate(near.cq, 1000, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(near.cq, 0), 0);
  Write();
  EXPECT_FALSE(HasEvent(20));
  ASSERT_EQ(Moderate(near.cq, 0, 0), 0);
  EXPECT_TRUE(HasEvent(kPatience_ms)) << "the held-back event is sent";
  Drain();
  ASSERT_EQ(ibv_req_notify_cq(near.cq, 0), 0);
  Write();
  EXPECT_TRUE(HasEvent(kPatience_ms));
}

TEST_F(VerbsModeration, IsAdvertised) {
  ibv_device_attr_ex attr = {};
  ASSERT_EQ(ibv_query_device_ex(DeviceZero().context, nullptr, &attr), 0);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_count, 65535);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_period, 65535);
  ibv_modify_cq_attr modify = {};
  modify.attr_mask = 1u << 20;
  EXPECT_EQ(ibv_modify_cq(near.cq, &modify), EOPNOTSUPP);
}

TEST(VerbsEce, OffersNoOptions) {
  Endpoint endpoint(DeviceZero());
  ibv_ece ece = {};
  ece.options = 77;
  ASSERT_EQ(ibv_query_ece(endpoint.qp, &ece), 0);
  EXPECT_EQ(ece.vendor_id, DeviceZero().attr.vendor_id);
  EXPECT_EQ(ece.options, 0u);
  EXPECT_EQ(ibv_set_ece(endpoint.qp, &ece), 0);
  ece.vendor_id ^= 1;
  EXPECT_EQ(ibv_set_ece(endpoint.qp, &ece), EINVAL);
  ece.vendor_id ^= 1;
  ece.comp_mask = 1;
  EXPECT_EQ(ibv_set_ece(endpoint.qp, &ece), EINVAL);
}

TEST(VerbsQuery, ReportsNoByteOrderGuarantee) {
  Endpoint endpoint(DeviceZero());
  EXPECT_EQ(ibv_query_qp_data_in_order(endpoint.qp, IBV_WR_RDMA_WRITE, 0), 0);
}

}  // namespace
}  // namespace roci::testing
