// Signature regions (rocidv.h) as a program uses them: protection information between two devices,
// compared with the test's own computation.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/integration/signature_region.h"

namespace roci::testing {
namespace {

class DirectSignatures : public ::testing::Test {
 protected:
  SignatureRegion Near(const rocidv_sig_attr& attr, uint32_t blocks = 5, bool is_separate = false) {
    return SignatureRegion(pair_.near, pair_.near_device, attr, blocks, is_separate);
  }
  SignatureRegion Far(const rocidv_sig_attr& attr, uint32_t blocks = 5, bool is_separate = false,
                      unsigned access = kAll) {
    return SignatureRegion(pair_.far, pair_.far_device, attr, blocks, is_separate, access);
  }
  ibv_wc_status Do(ibv_wr_opcode opcode, ibv_sge sge, uint64_t remote = 0, uint32_t key = 0) {
    EXPECT_EQ(pair_.near.PostSend(opcode, sge, IBV_SEND_SIGNALED, remote, key), 0);
    return pair_.near.Wait().status;
  }
  static Bytes Data(uint32_t seed, size_t bytes) { return PatternBytes(seed, bytes); }
  Bytes Plain(size_t bytes) { return {plain_.data(), plain_.data() + bytes}; }

  Pair pair_;
  Buffer plain_{pair_.far_device, kBuffer, 3};  // ordinary memory at the far end
};

TEST_F(DirectSignatures, AreAdvertisedAndLimited) {
  rocidv_device_attr attr = {};
  ASSERT_EQ(rocidv_query_device(pair_.near_device.context, &attr, sizeof(attr)), 0);
  EXPECT_EQ(attr.sig_block_sizes, 0x1FU);
  EXPECT_EQ(attr.sig_guards, 3U);
  ASSERT_GE(attr.max_protection_entries, 1U);
  ibv_pd* pd = pair_.near_device.pd;
  rocidv_mr* mr = rocidv_alloc_mr_integrity(pd, attr.max_mr_entries, attr.max_protection_entries);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->max_protection_entries, attr.max_protection_entries);
  EXPECT_EQ(rocidv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr_integrity(pd, attr.max_mr_entries + 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr_integrity(pd, 1, attr.max_protection_entries + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr_integrity(pd, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

struct Layout {
  const char* name;
  uint32_t block_size;
  uint32_t blocks;
  bool is_separate;
};
class DirectSignatureLayouts : public DirectSignatures,
                               public ::testing::WithParamInterface<Layout> {};

// No protection information in memory, but on the wire, whose bytes the peer's memory gets.
TEST_P(DirectSignatureLayouts, InsertAndStrip) {
  const Layout layout = GetParam();
  const rocidv_sig_attr attr = {kNone, T10(), layout.block_size, kChecks};
  SignatureRegion near = Near(attr, layout.blocks);
  const Bytes data = Data(1, size_t{layout.blocks} * layout.block_size);
  const Bytes wire = Image(attr.wire, data, layout.block_size);
  ASSERT_EQ(near.mr->length, wire.size());
  near.Fill(data);
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, near.Sge(), plain_.address(), plain_.rkey()), IBV_WC_SUCCESS);
  EXPECT_EQ(Plain(wire.size()), wire);
  plain_.Fill(9);
  ASSERT_EQ(pair_.far.PostRecv(plain_.Sge(0, wire.size())), 0);
  ASSERT_EQ(Do(IBV_WR_SEND, near.Sge()), IBV_WC_SUCCESS);
  EXPECT_EQ(pair_.far.Wait().byte_len, wire.size());
  EXPECT_EQ(Plain(wire.size()), wire);
  // In the other direction, into cleared memory.
  near.Fill(Bytes(data.size()));
  ASSERT_EQ(Do(IBV_WR_RDMA_READ, near.Sge(), plain_.address(), plain_.rkey()), IBV_WC_SUCCESS);
  near.Expect(data);
  near.ExpectNoError();
}

// Protection information in memory, none on the wire.
TEST_P(DirectSignatureLayouts, GenerateInMemoryAndRemove) {
  const Layout layout = GetParam();
  const rocidv_sig_attr attr = {T10(ROCIDV_SIG_CHECKSUM), kNone, layout.block_size, kChecks};
  SignatureRegion far = Far(attr, layout.blocks, layout.is_separate);
  Buffer here(pair_.near_device, kBuffer, 1);
  const Bytes data = Data(1, size_t{layout.blocks} * layout.block_size);
  ASSERT_EQ(far.mr->length, data.size());
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, data.size()), 0, far.mr->rkey), IBV_WC_SUCCESS);
  far.Expect(data);
  here.Fill(2);
  ASSERT_EQ(Do(IBV_WR_RDMA_READ, here.Sge(0, data.size()), 0, far.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Bytes(here.data(), here.data() + data.size()), data);
  far.ExpectNoError();
  far.Stored(1, 1) ^= 4;
  ASSERT_EQ(Do(IBV_WR_RDMA_READ, here.Sge(0, data.size()), 0, far.mr->rkey), IBV_WC_SUCCESS);
  far.ExpectError(ROCIDV_SIG_BAD_GUARD, 4, layout.block_size);
  // A receive generates it as well.
  const Bytes other = Data(2, data.size());
  here.Fill(2);
  ASSERT_EQ(pair_.far.PostRecv(far.Sge()), 0);
  ASSERT_EQ(Do(IBV_WR_SEND, here.Sge(0, data.size())), IBV_WC_SUCCESS);
  EXPECT_EQ(pair_.far.Wait().status, IBV_WC_SUCCESS);
  far.Expect(other);
}

// Protection information everywhere, with different guards and tags in each memory and on the wire.
TEST_P(DirectSignatureLayouts, PassAndConvert) {
  const Layout layout = GetParam();
  rocidv_sig_domain near_memory = T10(ROCIDV_SIG_CHECKSUM);
  near_memory.ref_tag = 9000;
  rocidv_sig_domain far_memory = T10();
  far_memory.app_tag = 1;
  far_memory.seed = 0xFFFF;
  far_memory.flags = 0;
  SignatureRegion near =
      Near({near_memory, T10(), layout.block_size, kChecks}, layout.blocks, layout.is_separate);
  SignatureRegion far =
      Far({far_memory, T10(), layout.block_size, kChecks}, layout.blocks, !layout.is_separate);
  const Bytes data = Data(4, size_t{layout.blocks} * layout.block_size);
  near.Fill(data);
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, near.Sge(), 0, far.mr->rkey), IBV_WC_SUCCESS);
  far.Expect(data);
  near.Fill(Bytes(data.size()));
  ASSERT_EQ(Do(IBV_WR_RDMA_READ, near.Sge(), 0, far.mr->rkey), IBV_WC_SUCCESS);
  near.Expect(data);
  near.ExpectNoError();
  far.ExpectNoError();
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, DirectSignatureLayouts,
    ::testing::Values(Layout{"b512", 512, 9, false}, Layout{"b512separate", 512, 9, true},
                      Layout{"b520", 520, 7, true}, Layout{"b4048", 4048, 3, false},
                      Layout{"b4096", 4096, 3, false}, Layout{"b4096separate", 4096, 3, true},
                      Layout{"b4160", 4160, 2, false}),
    [](const auto& tested) { return std::string(tested.param.name); });

struct Damage {
  uint32_t byte;
  uint32_t type;
  uint32_t difference;
};
constexpr Damage kDamages[] = {{0, ROCIDV_SIG_BAD_GUARD, 0x100},
                               {3, ROCIDV_SIG_BAD_APP_TAG, 0x1},
                               {4, ROCIDV_SIG_BAD_REF_TAG, 0x1000000}};

TEST_F(DirectSignatures, CorruptionIsReportedAtBothEndsAndStopsNothing) {
  const rocidv_sig_attr attr = {T10(), T10(), 512, kChecks};
  SignatureRegion near = Near(attr, 6, true);
  SignatureRegion far = Far(attr, 6);
  const Bytes data = Data(5, 6 * 512);
  for (const Damage& damage : kDamages) {
    near.Fill(data);
    near.Stored(3, damage.byte) ^= 1;
    near.Stored(5, 0) ^= 1;  // the second one
    ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, near.Sge(), 0, far.mr->rkey), IBV_WC_SUCCESS);
    near.ExpectError(damage.type, damage.difference, 3 * 520);
    far.ExpectError(damage.type, damage.difference, 3 * 520);
    EXPECT_EQ(far.Stored(3, damage.byte), near.Stored(3, damage.byte));
    // As READ response, the data leaves the far memory and enters the near one.
    ASSERT_EQ(Do(IBV_WR_RDMA_READ, near.Sge(), 0, far.mr->rkey), IBV_WC_SUCCESS);
    near.ExpectError(damage.type, damage.difference, 3 * 520);
    far.ExpectError(damage.type, damage.difference, 3 * 520);
  }
}

TEST_F(DirectSignatures, ProgramsChooseChecksAndEscapes) {
  rocidv_sig_attr attr = {kNone, T10(), 512, ROCIDV_SIG_CHECK_APP_TAG};
  attr.wire.app_tag_check_mask = 0xFF00;
  attr.wire.flags |= ROCIDV_SIG_APP_ESCAPE;
  SignatureRegion far = Far(attr, 4);
  Buffer here(pair_.near_device, kBuffer, 1);
  const Bytes wire = Image(attr.wire, Data(1, 4 * 512), 512);
  const auto write = [&] {
    EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, wire.size()), 0, far.mr->rkey), IBV_WC_SUCCESS);
  };
  memcpy(here.data(), wire.data(), wire.size());
  here.data()[512] ^= 1;        // a guard
  here.data()[519] ^= 1;        // a reference tag
  here.data()[520 + 515] ^= 1;  // outside of the mask
  here.data()[1040 + 514] = here.data()[1040 + 515] = 0xFF;
  write();
  far.ExpectNoError();
  here.data()[1560 + 514] ^= 0x20;
  write();
  far.ExpectError(ROCIDV_SIG_BAD_APP_TAG, 0x2000, 1560);
}

TEST_F(DirectSignatures, ARegistrationEndsWithItsKeyAndRestarts) {
  const rocidv_sig_attr attr = {kNone, T10(), 512, kChecks};
  SignatureRegion far = Far(attr, 2);
  Buffer here(pair_.near_device, kBuffer, 1);
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, 1040), 0, far.mr->rkey), IBV_WC_SUCCESS);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = far.mr->rkey;
  ASSERT_EQ(pair_.far.Post(wr), 0);
  ASSERT_EQ(pair_.far.Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far.TakeError().type, unsigned{ROCIDV_SIG_BAD_GUARD});  // the error is still available
  rocidv_update_rkey(far.mr, static_cast<uint8_t>(far.mr->rkey + 1));
  far.Register();
  far.ExpectNoError();
  ASSERT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, 1040), 0, far.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(far.TakeError().key, far.mr->rkey);
  EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, 1040), 0, wr.invalidate_rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectSignatures, BlocksMaySpanSeveralMessages) {
  const rocidv_sig_attr attr = {kNone, T10(), 512, kChecks};
  SignatureRegion far = Far(attr, 4);
  Buffer here(pair_.near_device, kBuffer, 1);
  const Bytes data = Data(1, 4 * 512);
  const Bytes wire = Image(attr.wire, data, 512);
  memcpy(here.data(), wire.data(), wire.size());
  const auto write = [&](size_t from, size_t bytes) {
    return Do(IBV_WR_RDMA_WRITE, here.Sge(from, bytes), from, far.mr->rkey);
  };
  EXPECT_EQ(write(1040, 1040), IBV_WC_SUCCESS);
  EXPECT_EQ(write(0, 515), IBV_WC_SUCCESS);
  EXPECT_EQ(write(515, 525), IBV_WC_SUCCESS);
  far.Expect(data);
  far.ExpectNoError();
  EXPECT_EQ(write(10, 100), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectSignatures, AReceiveFromWithinABlockFails) {
  const rocidv_sig_attr attr = {kNone, T10(), 512, kChecks};
  SignatureRegion far = Far(attr, 2);
  Buffer here(pair_.near_device, kBuffer, 1);
  ASSERT_EQ(pair_.far.PostRecv({8, 512, far.mr->lkey}), 0);
  EXPECT_NE(Do(IBV_WR_SEND, here.Sge(0, 512)), IBV_WC_SUCCESS);
  EXPECT_EQ(pair_.far.Wait().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(DirectSignatures, RightsAreSetByTheRegistration) {
  const rocidv_sig_attr attr = {kNone, T10(), 512, kChecks};
  SignatureRegion far = Far(attr, 2, false, IBV_ACCESS_REMOTE_READ);
  Buffer here(pair_.near_device, kBuffer, 1);
  EXPECT_EQ(Do(IBV_WR_RDMA_READ, here.Sge(0, 1040), 0, far.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, here.Sge(0, 1040), 0, far.mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectSignatures, AreNotForAtomics) {
  const rocidv_sig_attr attr = {kNone, kNone, 512, 0};
  SignatureRegion far = Far(attr, 2);
  EXPECT_EQ(rocidv_post_reg_mr(pair_.far.qp, far.mr, kAll | IBV_ACCESS_REMOTE_ATOMIC, 1, 0),
            EINVAL);
  Buffer here(pair_.near_device, 4096, 1);
  ibv_send_wr wr = {};
  ibv_sge sge = here.Sge(0, 8);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic.rkey = far.mr->rkey;
  ASSERT_EQ(pair_.near.Post(wr), 0);
  EXPECT_EQ(pair_.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DirectSignatures, RefuseInvalidLayouts) {
  rocidv_mr* mr = rocidv_alloc_mr_integrity(pair_.near_device.pd, 2, 1);
  ASSERT_NE(mr, nullptr);
  const uint64_t at = plain_.address();
  const ibv_sge data[] = {{at, 1024, 1}, {at, 1024, 1}, {at, 1024, 1}};
  const ibv_sge protection[] = {{at, 16, 1}, {at, 16, 1}};
  const auto map = [&](rocidv_sig_attr attr, uint32_t count = 1, uint32_t protection_count = 0) {
    return rocidv_map_mr_sg_integrity(mr, data, count, protection, protection_count, &attr, 0);
  };
  const rocidv_sig_attr good = {kNone, T10(), 512, kChecks};
  EXPECT_EQ(rocidv_post_reg_mr(pair_.near.qp, mr, kAll, 1, 0), EINVAL);  // nothing is mapped
  EXPECT_EQ(map(good), 0);
  EXPECT_EQ(mr->length, 1040U);
  EXPECT_EQ(map({T10(), kNone, 512, kChecks}, 1, 1), 0);
  EXPECT_EQ(mr->length, 1024U);
  EXPECT_EQ(map(good, 0), EINVAL);
  EXPECT_EQ(map(good, 3), EINVAL);
  EXPECT_EQ(map(good, 1, 1), EINVAL);  // memory has no protection information
  EXPECT_EQ(map({T10(), kNone, 512, kChecks}, 2, 1), EINVAL);
  EXPECT_EQ(map({T10(), kNone, 512, kChecks}, 2, 2), EINVAL);
  EXPECT_EQ(map({T10(), kNone, 512, kChecks}, 1, 0), EINVAL);
  rocidv_sig_attr bad = good;
  bad.block_size = 1000;
  EXPECT_EQ(map(bad), EINVAL);
  bad.block_size = 4096;
  EXPECT_EQ(map(bad), EINVAL);
  bad = good;
  bad.check_mask = 0x80;
  EXPECT_EQ(map(bad), EINVAL);
  bad.check_mask = 0x100;
  EXPECT_EQ(map(bad), EINVAL);
  bad = good;
  bad.wire.type = 2;
  EXPECT_EQ(map(bad), EINVAL);
  bad = good;
  bad.wire.guard = 2;
  EXPECT_EQ(map(bad), EINVAL);
  bad = good;
  bad.wire.flags = ROCIDV_SIG_APP_ESCAPE | ROCIDV_SIG_APP_REF_ESCAPE;
  EXPECT_EQ(map(bad), EINVAL);
  bad.wire.flags = 8;
  EXPECT_EQ(map(bad), EINVAL);
  EXPECT_EQ(rocidv_map_mr_sg(mr, data, 1, 0), EINVAL);
  EXPECT_EQ(rocidv_dereg_mr(mr), 0);

  mr = rocidv_alloc_mr(pair_.near_device.pd, 2);
  ASSERT_NE(mr, nullptr);
  rocidv_sig_error error = {};
  EXPECT_EQ(map(good), EINVAL);
  EXPECT_EQ(rocidv_check_mr_status(mr, &error), EINVAL);
  EXPECT_EQ(rocidv_dereg_mr(mr), 0);
}

TEST_F(DirectSignatures, AnUnknownKeyFailsTheRegistration) {
  rocidv_mr* mr = rocidv_alloc_mr_integrity(pair_.near_device.pd, 1, 1);
  ASSERT_NE(mr, nullptr);
  const ibv_sge data = {plain_.address(), 512, 1};
  const rocidv_sig_attr attr = {kNone, T10(), 512, kChecks};
  ASSERT_EQ(rocidv_map_mr_sg_integrity(mr, &data, 1, nullptr, 0, &attr, 0), 0);
  ASSERT_EQ(rocidv_post_reg_mr(pair_.near.qp, mr, kAll, 8, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(pair_.near.Wait().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(rocidv_dereg_mr(mr), 0);
}

int PollNothing(ibv_cq*, int, ibv_wc*) { return 0; }

// A context of another provider.
TEST(DirectVerbsElsewhere, AreNotSupported) {
  ibv_context context = {};
  context.ops.poll_cq = PollNothing;
  ibv_pd pd = {};
  pd.context = &context;
  EXPECT_FALSE(rocidv_is_supported(&context));
  rocidv_device_attr attr = {};
  EXPECT_EQ(rocidv_query_device(&context, &attr, sizeof(attr)), EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr(&pd, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(rocidv_alloc_mr_integrity(&pd, 1, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace roci::testing
