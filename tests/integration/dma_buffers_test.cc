// Regions in DMA buffers (ibv_reg_dmabuf_mr): the bytes of every operation, and what is refused.
#include <gtest/gtest.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/integration/dma_buffer.h"
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t kPage = 4096;
constexpr size_t kBytes = 64 * kPage;
constexpr uint64_t kIova = 0x10000000;

class DmaBuffers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (buffer_.fd < 0) {
      // If the environment promises DMA buffers, their absence is a failure.
      ASSERT_EQ(getenv("ROCI_TEST_NEEDS_DMA_BUFFERS"), nullptr) << strerror(errno);
      GTEST_SKIP() << "the kernel exports no DMA buffers here (udmabuf, vgem)";
    }
    ASSERT_NE(buffer_.data, nullptr);
    Look(DMA_BUF_SYNC_START);
    for (size_t i = 0; i < kBytes; ++i) buffer_.data[i] = PatternByte(9, i);
  }
  // Brackets the test's own accesses, as the exporter requires.
  void Look(uint64_t begin_or_end) {
    dma_buf_sync sync = {};
    sync.flags = begin_or_end | DMA_BUF_SYNC_RW;
    ASSERT_EQ(ioctl(buffer_.fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
  }
  void Register(int access = kAll, uint64_t offset = 0, size_t length = kBytes) {
    mr_ = ibv_reg_dmabuf_mr(DeviceOne().pd, offset, length, kIova + offset % kPage, buffer_.fd,
                            access);
    ASSERT_NE(mr_, nullptr) << strerror(errno);
  }
  int Refusal(uint64_t offset, size_t length, int access = kAll, int fd = -2) {
    errno = 0;
    ibv_mr* mr = ibv_reg_dmabuf_mr(DeviceOne().pd, offset, length, kIova + offset % kPage,
                                   fd == -2 ? buffer_.fd : fd, access);
    EXPECT_EQ(mr, nullptr);
    if (mr != nullptr) ibv_dereg_mr(mr);
    return errno;
  }
  void TearDown() override {
    if (mr_ != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    }
    if (buffer_.data != nullptr) Look(DMA_BUF_SYNC_END);
  }

  DmaBuffer buffer_{kBytes};
  Pair pair_;
  Buffer here_{DeviceZero(), kBytes, 1};
  ibv_mr* mr_ = nullptr;
};

TEST_F(DmaBuffers, PeerWritesAndReads) {
  // The range does not start at a page boundary.
  constexpr uint64_t kStart = kIova + 100;
  Register(kAll, 3 * kPage + 100, 20000);
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_WRITE, here_.Sge(0, 19000), IBV_SEND_SIGNALED,
                                kStart + 1000, mr_->rkey),
            0);
  pair_.near.ExpectSuccess();
  EXPECT_EQ(memcmp(buffer_.data + 3 * kPage + 1100, here_.data(), 19000), 0);
  EXPECT_EQ(buffer_.data[3 * kPage + 1099], PatternByte(9, 3 * kPage + 1099));
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_READ, here_.Sge(0, 20000), IBV_SEND_SIGNALED, kStart,
                                mr_->rkey),
            0);
  pair_.near.ExpectSuccess();
  EXPECT_EQ(memcmp(here_.data(), buffer_.data + 3 * kPage + 100, 20000), 0);
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_READ, here_.Sge(0, 1), IBV_SEND_SIGNALED,
                                kStart + 20000, mr_->rkey),
            0);
  EXPECT_EQ(pair_.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DmaBuffers, AreSentAndReceivedInto) {
  Register();
  const ibv_sge place = {kIova + 5000, 30000, mr_->lkey};
  ASSERT_EQ(pair_.far.PostRecv(place), 0);
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_SEND, here_.Sge(0, 30000)), 0);
  pair_.near.ExpectSuccess();
  pair_.far.ExpectSuccess(2);
  EXPECT_EQ(memcmp(buffer_.data + 5000, here_.data(), 30000), 0);
  // Small and large: small payloads are copied into the queue if the memory may be read.
  for (const uint32_t length : {16U, 50000U}) {
    ASSERT_EQ(pair_.near.PostRecv(here_.Sge(0, length)), 0);
    ASSERT_EQ(pair_.far.PostSend(IBV_WR_SEND, {kIova + 77, length, mr_->lkey}), 0);
    pair_.far.ExpectSuccess();
    pair_.near.ExpectSuccess(2);
    EXPECT_EQ(memcmp(buffer_.data + 77, here_.data(), length), 0);
  }
}

TEST_F(DmaBuffers, ReceiveDataOfOwnReads) {
  Register();
  ASSERT_EQ(pair_.far.PostSend(IBV_WR_RDMA_READ, {kIova, 40000, mr_->lkey}, IBV_SEND_SIGNALED,
                               here_.address() + 3, here_.rkey()),
            0);
  pair_.far.ExpectSuccess();
  EXPECT_EQ(memcmp(buffer_.data, here_.data() + 3, 40000), 0);
}

TEST_F(DmaBuffers, PeerChangesWords) {
  Register();
  uint64_t word = 41;
  memcpy(buffer_.data + 64, &word, sizeof(word));
  ibv_send_wr wr = {};
  ibv_sge result = here_.Sge(0, 8);
  wr.sg_list = &result;
  wr.num_sge = 1;
  wr.wr_id = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = kIova + 64;
  wr.wr.atomic.rkey = mr_->rkey;
  wr.wr.atomic.compare_add = 1;
  ASSERT_EQ(pair_.near.Post(wr), 0);
  pair_.near.ExpectSuccess();
  memcpy(&word, buffer_.data + 64, sizeof(word));
  EXPECT_EQ(word, 42U);
  memcpy(&word, here_.data(), sizeof(word));
  EXPECT_EQ(word, 41U);
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic.compare_add = 42;
  wr.wr.atomic.swap = 7;
  ASSERT_EQ(pair_.near.Post(wr), 0);
  pair_.near.ExpectSuccess();
  memcpy(&word, buffer_.data + 64, sizeof(word));
  EXPECT_EQ(word, 7U);
}

// The region keeps the buffer alive after descriptor and mapping are closed.
TEST_F(DmaBuffers, OutlivesTheDescriptor) {
  Register();
  Look(DMA_BUF_SYNC_END);
  munmap(buffer_.data, buffer_.size);
  buffer_.data = nullptr;
  close(buffer_.fd);
  buffer_.fd = -1;
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_READ, here_.Sge(0, 5000), IBV_SEND_SIGNALED, kIova,
                                mr_->rkey),
            0);
  pair_.near.ExpectSuccess();
  for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(here_.data()[i], PatternByte(9, i)) << i;
}

TEST_F(DmaBuffers, RefusesInvalidRequests) {
  EXPECT_EQ(Refusal(0, kBytes + 1), EINVAL);
  EXPECT_EQ(Refusal(kBytes, 1), EINVAL);
  EXPECT_EQ(Refusal(~uint64_t{0}, 2), EINVAL);
  EXPECT_EQ(Refusal(0, 0), EINVAL);
  EXPECT_EQ(Refusal(0, kPage, kAll | IBV_ACCESS_ON_DEMAND), EINVAL);
  EXPECT_EQ(Refusal(0, kPage, IBV_ACCESS_REMOTE_WRITE), EINVAL) << "without local write";
  EXPECT_EQ(Refusal(0, kPage, kAll, -1), EBADF);
  const int memory = memfd_create("no-dmabuf", MFD_CLOEXEC);
  EXPECT_EQ(Refusal(0, kPage, kAll, memory), EINVAL);
  close(memory);
}

TEST_F(DmaBuffers, EnforceAccessRights) {
  Register(IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(
      pair_.near.PostSend(IBV_WR_RDMA_READ, here_.Sge(0, 100), IBV_SEND_SIGNALED, kIova, mr_->rkey),
      0);
  pair_.near.ExpectSuccess();
  ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_WRITE, here_.Sge(0, 100), IBV_SEND_SIGNALED, kIova,
                                mr_->rkey),
            0);
  EXPECT_EQ(pair_.near.Wait().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(buffer_.data[0], PatternByte(9, 0));
}

TEST_F(DmaBuffers, CannotBeReregistered) {
  Register();
  // The library refuses for every provider.
  errno = 0;
  EXPECT_NE(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, here_.data(), kPage, 0), 0);
  EXPECT_EQ(errno, EINVAL);
  // Several regions may cover the same bytes.
  ibv_mr* more[20];
  for (ibv_mr*& mr : more) {
    mr = ibv_reg_dmabuf_mr(DeviceOne().pd, 0, kBytes, kIova, buffer_.fd, kAll);
    ASSERT_NE(mr, nullptr) << strerror(errno);
  }
  for (ibv_mr* mr : more) EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace roci::testing
