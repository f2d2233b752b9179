// Direct verbs (rocidv.h) as a program uses them: regions that work requests register. Checks all
// bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/integration/verbs_endpoint.h"
#include "tools/show/manage_client.h"
#include "verbs_provider/include/infiniband/rocidv.h"

namespace roci::testing {
namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t kPage = 4096;

class DirectVerbs : public ::testing::Test {
 public:
  ~DirectVerbs() override {
    if (mr_ != nullptr) {
      EXPECT_EQ(rocidv_dereg_mr(mr_), 0);
    }
  }

 protected:
  void Make(uint32_t max_entries = 16) {
    mr_ = rocidv_alloc_mr(pair_.far_device.pd, max_entries);
    ASSERT_NE(mr_, nullptr) << strerror(errno);
  }
  void Register(unsigned access = kAll) {
    ASSERT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, access, 77, IBV_SEND_SIGNALED), 0);
    const ibv_wc wc = pair_.far.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_DRIVER1);
    EXPECT_EQ(wc.wr_id, 77U);
  }
  ibv_wc_status Remote(ibv_wr_opcode opcode, ibv_sge sge, uint64_t address, uint32_t key) {
    EXPECT_EQ(pair_.near.PostSend(opcode, sge, IBV_SEND_SIGNALED, address, key), 0);
    return pair_.near.Wait().status;
  }
  int Invalidate(uint32_t key) {
    ibv_send_wr wr = {};
    wr.wr_id = 6;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = key;
    return pair_.far.Post(wr);
  }

  Pair pair_;
  Buffer here_{pair_.near_device, 16 * kPage, 1};
  // No remote rights, which the list has.
  Buffer there_{pair_.far_device, 16 * kPage, 2, IBV_ACCESS_LOCAL_WRITE};
  rocidv_mr* mr_ = nullptr;
};

TEST_F(DirectVerbs, ReportTheDevicesLimits) {
  ASSERT_TRUE(rocidv_is_supported(pair_.far_device.context));
  rocidv_device_attr attr = {};
  ASSERT_EQ(rocidv_query_device(pair_.far_device.context, &attr, sizeof(attr)), 0);
  EXPECT_NE(pair_.far_device.attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS, 0U);
  ASSERT_GE(attr.max_mr_entries, 1U);
  Make(attr.max_mr_entries);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr(pair_.far_device.pd, attr.max_mr_entries + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rocidv_alloc_mr(pair_.far_device.pd, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* pd = ibv_alloc_pd(pair_.far_device.context);
  rocidv_mr* other = rocidv_alloc_mr(pd, 1);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(rocidv_dereg_mr(other), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// The entry of `roci show mrs` for a key of this program.
nlohmann::json Shown(uint32_t key) {
  const auto mrs = tools::AskDaemon("", {{"command", "show"}, {"what", "mrs"}});
  EXPECT_TRUE(mrs.ok()) << mrs.status();
  char text[16];
  snprintf(text, sizeof(text), "0x%x", key);
  nlohmann::json found;
  for (const nlohmann::json& mr : *mrs) {
    if (mr["key"] == text && mr["pid"] == getpid()) found = mr;
  }
  return found;
}

TEST_F(DirectVerbs, AreShownByTheirKinds) {
  Make();
  EXPECT_EQ(Shown(there_.rkey())["kind"], "region");
  nlohmann::json list = Shown(mr_->rkey);
  EXPECT_EQ(list["kind"], "list");
  EXPECT_EQ(list["length"], 0);
  const ibv_sge runs[] = {there_.Sge(7, 100), there_.Sge(0, 1)};
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs, 2, 0x5000), 0);
  Register();
  list = Shown(mr_->rkey);
  EXPECT_EQ(list["kind"], "list");
  EXPECT_EQ(list["length"], 101);
  EXPECT_EQ(list["iova"], "0x5000");
  EXPECT_EQ(list["reached_by"], "regions");
  ibv_mw* mw = ibv_alloc_mw(pair_.far_device.pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(Shown(mw->rkey)["kind"], "window");
  const uint32_t rkey = mw->rkey;
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_TRUE(Shown(rkey).is_null());
  ibv_mr* null = ibv_alloc_null_mr(pair_.far_device.pd);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(Shown(null->lkey)["kind"], "null");
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(DirectVerbs, AListIsOneRegionForReadsAndWrites) {
  Make();
  const ibv_sge runs[] = {there_.Sge(3 * kPage + 7, 1000), there_.Sge(0, 1),
                          there_.Sge(kPage, 5000)};
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs, 3, 0x123456), 0);
  EXPECT_EQ(mr_->length, 6001U);
  Register();
  ASSERT_EQ(Remote(IBV_WR_RDMA_WRITE, here_.Sge(0, 6001), 0x123456, mr_->rkey), IBV_WC_SUCCESS);
  size_t at = 0;
  for (const ibv_sge& run : runs) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(run.addr);
    for (uint32_t i = 0; i < run.length; ++i) ASSERT_EQ(bytes[i], PatternByte(1, at++)) << at;
  }
  EXPECT_EQ(there_.data()[3 * kPage + 1007], PatternByte(2, 3 * kPage + 1007));
  here_.Fill(9);
  ASSERT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 3000), 0x123456 + 999, mr_->rkey),
            IBV_WC_SUCCESS);
  for (size_t i = 0; i < 3000; ++i) ASSERT_EQ(here_.data()[i], PatternByte(1, 999 + i));
  EXPECT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 2), 0x123456 + 6000, mr_->rkey),
            IBV_WC_REM_ACCESS_ERR);
}

// More runs than fit in a packet.
TEST_F(DirectVerbs, AListMayHaveManySmallRuns) {
  constexpr uint32_t kRuns = 500;
  Make(kRuns);
  std::vector<ibv_sge> runs;
  for (uint32_t i = 0; i < kRuns; ++i) runs.push_back(there_.Sge(16 * (kRuns - i), 1 + i % 8));
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs.data(), static_cast<int>(runs.size()), 0), 0);
  const auto length = static_cast<uint32_t>(mr_->length);
  Register();
  ASSERT_EQ(Remote(IBV_WR_RDMA_WRITE, here_.Sge(0, length), 0, mr_->rkey), IBV_WC_SUCCESS);
  size_t at = 0;
  for (const ibv_sge& run : runs) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(run.addr);
    for (uint32_t i = 0; i < run.length; ++i) ASSERT_EQ(bytes[i], PatternByte(1, at++)) << at;
  }
  here_.Fill(9);
  ASSERT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, length), 0, mr_->rkey), IBV_WC_SUCCESS);
  for (size_t i = 0; i < length; ++i) ASSERT_EQ(here_.data()[i], PatternByte(1, i));
  ASSERT_EQ(pair_.near.PostRecv(here_.Sge(0, 4096), 3), 0);
  ASSERT_EQ(pair_.far.PostSend(IBV_WR_SEND, {0, length, mr_->lkey}), 0);
  pair_.far.ExpectSuccess();
  EXPECT_EQ(pair_.near.Wait().byte_len, length);
}

TEST_F(DirectVerbs, PagesAreARegionToo) {
  Make();
  const uint64_t base = there_.address();
  const uint64_t pages[] = {base + 5 * kPage, base + kPage, base + 2 * kPage};
  ASSERT_EQ(rocidv_map_mr_pages(mr_, there_.lkey(), pages, 3, kPage, 100, 2 * kPage + 50, 0), 0);
  Register();
  ASSERT_EQ(Remote(IBV_WR_RDMA_WRITE, here_.Sge(0, 2 * kPage + 50), 0, mr_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(there_.data()[5 * kPage + 100], PatternByte(1, 0));
  EXPECT_EQ(there_.data()[5 * kPage + 99], PatternByte(2, 5 * kPage + 99));
  EXPECT_EQ(there_.data()[kPage], PatternByte(1, kPage - 100));
  EXPECT_EQ(there_.data()[2 * kPage + 149], PatternByte(1, 2 * kPage + 49));
  EXPECT_EQ(there_.data()[2 * kPage + 150], PatternByte(2, 2 * kPage + 150));
}

TEST_F(DirectVerbs, IsALocalKeyAndCanBeSentFrom) {
  Make();
  const ibv_sge runs[] = {there_.Sge(kPage, 2000), there_.Sge(0, 2000)};
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs, 2, 0), 0);
  Register(0);
  ASSERT_EQ(pair_.near.PostRecv(here_.Sge(0, 4096), 3), 0);
  ASSERT_EQ(pair_.far.PostSend(IBV_WR_SEND, {1000, 2500, mr_->lkey}), 0);
  pair_.far.ExpectSuccess();
  EXPECT_EQ(pair_.near.Wait().byte_len, 2500U);
  EXPECT_EQ(here_.data()[0], PatternByte(2, kPage + 1000));
  EXPECT_EQ(here_.data()[1000], PatternByte(2, 0));
  EXPECT_EQ(here_.data()[2499], PatternByte(2, 1499));
  EXPECT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 1), 0, mr_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectVerbs, RegistersAndInvalidatesManyKeys) {
  Make();
  const ibv_sge run = there_.Sge(0, 64);
  ASSERT_EQ(rocidv_map_mr_sg(mr_, &run, 1, 0), 0);
  for (int round = 0; round < 300; ++round) {
    rocidv_update_rkey(mr_, static_cast<uint8_t>(round));
    ASSERT_EQ(mr_->rkey & 0xFF, static_cast<uint32_t>(round & 0xFF));
    ASSERT_EQ(mr_->lkey, mr_->rkey);
    Register();
    ASSERT_EQ(Remote(IBV_WR_RDMA_WRITE, here_.Sge(0, 64), 0, mr_->rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(Invalidate(mr_->rkey), 0);
    ASSERT_EQ(pair_.far.Wait().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(Remote(IBV_WR_RDMA_WRITE, here_.Sge(0, 64), 0, mr_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectVerbs, ThePeerInvalidates) {
  Make();
  const ibv_sge run = there_.Sge(0, 64);
  ASSERT_EQ(rocidv_map_mr_sg(mr_, &run, 1, 0), 0);
  Register();
  ASSERT_EQ(pair_.far.PostRecv(there_.Sge(kPage, 64), 4), 0);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = mr_->rkey;
  ASSERT_EQ(pair_.near.Post(wr), 0);
  pair_.near.ExpectSuccess();
  const ibv_wc wc = pair_.far.Wait();
  EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc.invalidated_rkey, mr_->rkey);
  Register();  // the key can be registered again
  EXPECT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 64), 0, mr_->rkey), IBV_WC_SUCCESS);
}

TEST_F(DirectVerbs, WorksBetweenExtendedRequests) {
  Make();
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = pair_.far.cq;
  init.cap = {16, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pair_.far_device.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV;
  ibv_qp* qp = ibv_create_qp_ex(pair_.far_device.context, &init);
  ASSERT_NE(qp, nullptr);
  std::swap(qp, pair_.far.qp);
  ASSERT_EQ(pair_.near.ToState(IBV_QPS_RESET), 0);
  ASSERT_EQ(pair_.near.Connect(pair_.far), 0);
  ASSERT_EQ(pair_.far.Connect(pair_.near), 0);
  const ibv_sge run = there_.Sge(0, 64);
  ASSERT_EQ(rocidv_map_mr_sg(mr_, &run, 1, 0), 0);
  ibv_qp_ex* extended = ibv_qp_to_qp_ex(pair_.far.qp);
  ibv_wr_start(extended);
  extended->wr_flags = IBV_SEND_SIGNALED;
  extended->wr_id = 1;
  rocidv_wr_reg_mr(extended, mr_, kAll);
  extended->wr_id = 2;
  ibv_wr_local_inv(extended, mr_->rkey);
  extended->wr_id = 3;
  rocidv_wr_reg_mr(extended, mr_, IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(ibv_wr_complete(extended), 0);
  for (uint64_t i = 1; i <= 3; ++i) pair_.far.ExpectSuccess(i);
  EXPECT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 64), 0, mr_->rkey), IBV_WC_SUCCESS);
  ibv_wr_start(extended);
  rocidv_wr_reg_mr(extended, mr_, IBV_ACCESS_MW_BIND);
  EXPECT_EQ(ibv_wr_complete(extended), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, RefuseInvalidRequests) {
  Make(2);
  const ibv_sge runs[] = {there_.Sge(0, 10), there_.Sge(0, 0), there_.Sge(0, 10)};
  EXPECT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, kAll, 1, 0), EINVAL);  // nothing is mapped
  EXPECT_EQ(rocidv_map_mr_sg(mr_, runs, 0, 0), EINVAL);
  EXPECT_EQ(rocidv_map_mr_sg(mr_, runs, 2, 0), EINVAL);
  EXPECT_EQ(rocidv_map_mr_sg(mr_, runs, 3, 0), EINVAL);
  EXPECT_EQ(rocidv_map_mr_sg(mr_, runs, 1, UINT64_MAX - 3), EINVAL);
  const uint64_t page = there_.address();
  EXPECT_EQ(rocidv_map_mr_pages(mr_, there_.lkey(), &page, 1, kPage, 0, kPage + 1, 0), EINVAL);
  EXPECT_EQ(rocidv_map_mr_pages(mr_, there_.lkey(), &page, 1, kPage, kPage, 1, 0), EINVAL);
  EXPECT_EQ(rocidv_map_mr_pages(mr_, there_.lkey(), &page, 1, 3000, 0, 1, 0), EINVAL);
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs, 1, 0), 0);
  EXPECT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, IBV_ACCESS_REMOTE_WRITE, 1, 0), EINVAL);
  EXPECT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, IBV_ACCESS_ON_DEMAND, 1, 0), EINVAL);
  Register();
  // Registering a valid key again fails.
  ASSERT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, kAll, 8, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(pair_.far.Wait().status, IBV_WC_MW_BIND_ERR);
}

TEST_F(DirectVerbs, ARunOutsideOfItsRegionFailsTheRegistration) {
  Make();
  const ibv_sge run = {there_.address(), static_cast<uint32_t>(there_.size() + 1), there_.lkey()};
  ASSERT_EQ(rocidv_map_mr_sg(mr_, &run, 1, 0), 0);
  ASSERT_EQ(rocidv_post_reg_mr(pair_.far.qp, mr_, kAll, 8, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(pair_.far.Wait().status, IBV_WC_MW_BIND_ERR);
}

TEST_F(DirectVerbs, ADeregisteredRegionIsNotAccessed) {
  Make();
  auto gone = std::make_unique<Buffer>(pair_.far_device, kPage, 5, IBV_ACCESS_LOCAL_WRITE);
  const ibv_sge runs[] = {there_.Sge(0, 100), gone->Sge(0, 100)};
  ASSERT_EQ(rocidv_map_mr_sg(mr_, runs, 2, 0), 0);
  Register();
  gone.reset();
  EXPECT_EQ(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 100), 0, mr_->rkey), IBV_WC_SUCCESS);
  EXPECT_NE(Remote(IBV_WR_RDMA_READ, here_.Sge(0, 101), 0, mr_->rkey), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace roci::testing
