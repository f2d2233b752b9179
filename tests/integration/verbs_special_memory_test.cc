// Regions other than ordinary program memory: device memory, the null region, on-demand regions;
// and refusals of re-registration.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr unsigned kDmAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
                               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC;

uint64_t MaxDmSize() {
  ibv_device_attr_ex attr = {};
  EXPECT_EQ(ibv_query_device_ex(DeviceZero().context, nullptr, &attr), 0);
  return attr.max_dm_size;
}

ibv_dm* AllocDm(ibv_context* context, uint64_t length, uint32_t log_align = 0, uint32_t mask = 0) {
  ibv_alloc_dm_attr attr = {};
  attr.length = length;
  attr.log_align_req = log_align;
  attr.comp_mask = mask;
  errno = 0;
  return ibv_alloc_dm(context, &attr);
}

TEST(VerbsDeviceMemory, KeepsWrittenBytes) {
  Pair pair;
  Buffer here(pair.near_device, 4096, 1);
  ibv_dm* dm = AllocDm(pair.far_device.context, 5000, 6);
  ASSERT_NE(dm, nullptr) << strerror(errno);
  ibv_mr* mr = ibv_reg_dm_mr(pair.far_device.pd, dm, 1000, 4000, kDmAccess);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  ASSERT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 2000), IBV_SEND_SIGNALED, 100, mr->rkey),
      0);
  pair.near.ExpectSuccess();
  std::vector<uint8_t> copy(5000);
  EXPECT_EQ(dm->memcpy_from_dm(copy.data(), dm, 0, 5000), 0);
  EXPECT_EQ(memcmp(copy.data() + 1100, here.data(), 2000), 0);
  EXPECT_EQ(copy[1099], 0);
  EXPECT_EQ(copy[3100], 0);
  uint64_t number = 41;
  EXPECT_EQ(dm->memcpy_to_dm(dm, 1008, &number, 8), 0);
  ibv_sge sge = here.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic = {.remote_addr = 8, .compare_add = 1, .swap = 0, .rkey = mr->rkey};
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(0);
  EXPECT_EQ(dm->memcpy_from_dm(&number, dm, 1008, 8), 0);
  EXPECT_EQ(number, 42u);
  memcpy(&number, here.data(), 8);
  EXPECT_EQ(number, 41u);
  // As a local source, by offset.
  const ibv_sge from_dm = {100, 2000, mr->lkey};
  Buffer back(pair.near_device, 4096, 9);
  ASSERT_EQ(
      pair.far.PostSend(IBV_WR_RDMA_WRITE, from_dm, IBV_SEND_SIGNALED, back.address(), back.rkey()),
      0);
  pair.far.ExpectSuccess();
  EXPECT_EQ(memcmp(back.data(), copy.data() + 1100, 2000), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST(VerbsDeviceMemory, RefusesInvalidSizes) {
  OpenDevice& device = DeviceZero();
  const uint64_t most = MaxDmSize();
  ASSERT_GE(most, 4096u);
  EXPECT_EQ(AllocDm(device.context, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(AllocDm(device.context, 64, 40), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(AllocDm(device.context, 64, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(AllocDm(device.context, most + 1), nullptr);
  EXPECT_NE(errno, 0);
  ibv_dm* all = AllocDm(device.context, most);
  ASSERT_NE(all, nullptr) << strerror(errno);
  EXPECT_EQ(AllocDm(device.context, 4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(all), 0);
  ibv_dm* dm = AllocDm(device.context, 100);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(device.pd, dm, 0, 104, kDmAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(device.pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL) << "not zero-based";
  uint32_t word = 0;
  EXPECT_NE(dm->memcpy_to_dm(dm, 98, &word, 4), 0);
  EXPECT_NE(dm->memcpy_to_dm(dm, 3, &word, 4), 0);
  EXPECT_NE(dm->memcpy_from_dm(&word, dm, 104, 4), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST(VerbsDeviceMemory, IsImported) {
  OpenDevice& device = DeviceZero();
  ibv_dm* dm = AllocDm(device.context, 64);
  ASSERT_NE(dm, nullptr);
  ibv_dm* again = ibv_import_dm(device.context, dm->handle);
  ASSERT_NE(again, nullptr);
  uint32_t word = 77;
  EXPECT_EQ(again->memcpy_to_dm(again, 4, &word, 4), 0);
  word = 0;
  EXPECT_EQ(dm->memcpy_from_dm(&word, dm, 4, 4), 0);
  EXPECT_EQ(word, 77u);
  ibv_unimport_dm(again);
  EXPECT_EQ(ibv_import_dm(device.context, dm->handle + 1), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST(VerbsNullRegion, SwallowsAndGivesZeros) {
  Pair pair;
  ibv_mr* null = ibv_alloc_null_mr(pair.near_device.pd);
  ASSERT_NE(null, nullptr) << strerror(errno);
  Buffer here(pair.near_device, 4096, 1);
  Buffer there(pair.far_device, 4096, 2);
  // The middle of the data read is dropped; the middle of the data written is zeros.
  ibv_sge sges[] = {here.Sge(0, 100), {0x1234567, 200, null->lkey}, here.Sge(100, 100)};
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sges;
  wr.num_sge = 3;
  wr.wr.rdma = {.remote_addr = there.address(), .rkey = there.rkey()};
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(0);
  EXPECT_EQ(memcmp(here.data(), there.data(), 100), 0);
  EXPECT_EQ(memcmp(here.data() + 100, there.data() + 300, 100), 0);
  wr.opcode = IBV_WR_RDMA_WRITE;
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(0);
  const std::vector<uint8_t> zeros(200);
  EXPECT_EQ(memcmp(there.data() + 100, zeros.data(), 200), 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST(VerbsOnDemand, HolesFaultOnAccess) {
  constexpr size_t kPage = 4096;
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  Pair pair;
  Buffer there(pair.far_device, kPage, 2);
  ibv_pd* pd = pair.near_device.pd;
  // NOLINTNEXTLINE: ibv_reg_mr is a macro that looks at its flags when compiled
  ibv_mr* mr = ibv_reg_mr(pd, memory, 3 * kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const ibv_sge good = {start, kPage, mr->lkey};
  ASSERT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_READ, good, IBV_SEND_SIGNALED, there.address(), there.rkey()),
      0);
  pair.near.ExpectSuccess();
  EXPECT_EQ(memcmp(memory, there.data(), kPage), 0);
  ibv_sge sge = {start, kPage, mr->lkey};
  const auto write_advice = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, 0, &sge, 1), 0);
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, 2, &sge, 1), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, 0, &sge, 0), EINVAL);
  // Unmapped as late as possible, since another mapping could fill the hole.
  ASSERT_EQ(munmap(memory + 2 * kPage, kPage), 0);
  sge.addr = start + 2 * kPage;
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), EFAULT) << "hole";
  sge.length = kPage + 1;
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, 0, &sge, 1), EFAULT) << "beyond";
  sge.lkey ^= 0x55;
  EXPECT_EQ(ibv_advise_mr(pd, write_advice, 0, &sge, 1), ENOENT);
  const ibv_sge hole = {start + 2 * kPage, 8, mr->lkey};
  ASSERT_EQ(
      pair.near.PostSend(IBV_WR_RDMA_WRITE, hole, IBV_SEND_SIGNALED, there.address(), there.rkey()),
      0);
  EXPECT_EQ(pair.near.Wait().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(memory, 2 * kPage);
}

TEST(VerbsOnDemand, ImplicitRegionCoversEverything) {
  Pair pair;
  Buffer there(pair.far_device, 256, 2);
  // NOLINTNEXTLINE: see above
  ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, nullptr, SIZE_MAX,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  uint8_t on_stack[128];
  std::vector<uint8_t> on_heap(128);
  ibv_sge sges[] = {{reinterpret_cast<uintptr_t>(on_stack), 128, mr->lkey},
                    {reinterpret_cast<uintptr_t>(on_heap.data()), 128, mr->lkey}};
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sges;
  wr.num_sge = 2;
  wr.wr.rdma = {.remote_addr = there.address(), .rkey = there.rkey()};
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(0);
  EXPECT_EQ(memcmp(on_stack, there.data(), 128), 0);
  EXPECT_EQ(memcmp(on_heap.data(), there.data() + 128, 128), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST(VerbsRereg, RefusesWithACodeAndAnErrno) {
  Buffer buffer(DeviceZero(), 4096, 1);
  errno = 0;
  EXPECT_EQ(ibv_rereg_mr(buffer.mr, IBV_REREG_MR_CHANGE_PD, DeviceOne().pd, nullptr, 0, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL) << "domain of another device";
  EXPECT_EQ(ibv_rereg_mr(buffer.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL) << "remote write alone";
  EXPECT_EQ(ibv_rereg_mr(buffer.mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL) << "nothing to change";
}

}  // namespace
}  // namespace roci::testing
