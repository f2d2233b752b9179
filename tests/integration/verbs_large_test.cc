// The largest message of RC, 2 GiB, in one request each way, through Debian's libibverbs.
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <ctime>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 31;
constexpr uint32_t kSges = 32;
// Every local SGE names the same memory, so that the test needs 2 GiB and not 4.
constexpr uint64_t kLocal = kLargest / kSges;
constexpr uint64_t kStep = 3 * 1024 * 1024 + 17;  // from one mark to the next; prime to pages

// Registered zeros that use memory only for written pages.
struct Sparse {
  Sparse(OpenDevice& device, uint64_t bytes_wanted) : size(bytes_wanted) {
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    bytes = static_cast<uint8_t*>(p);
    mr = ibv_reg_mr(device.pd, p, size,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  }
  ~Sparse() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    if (bytes != nullptr) munmap(bytes, size);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  uint64_t size;
  uint8_t* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

void PostWhole(Endpoint& endpoint, ibv_wr_opcode opcode, Sparse& local, Sparse& remote) {
  std::array<ibv_sge, kSges> sges;
  sges.fill({reinterpret_cast<uintptr_t>(local.bytes), kLocal, local.mr->lkey});
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = sges.data();
  wr.num_sge = kSges;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(remote.bytes);
  wr.wr.rdma.rkey = remote.mr->rkey;
  ASSERT_EQ(endpoint.Post(wr), 0);
}

// Allocating gigabytes of pages may take longer than Endpoint::Wait allows.
ibv_wc_status WaitLong(Endpoint& endpoint) {
  const time_t give_up = time(nullptr) + 60;
  ibv_wc wc = {};
  while (ibv_poll_cq(endpoint.cq, 1, &wc) == 0) {
    if (time(nullptr) > give_up) return IBV_WC_GENERAL_ERR;
  }
  return wc.status;
}

EndpointOptions LargeOptions() {
  EndpointOptions options;
  options.mtu = IBV_MTU_4096;
  options.timeout = 18;
  options.max_sge = kSges;
  return options;
}

TEST(VerbsLarge, TwoGibibytesInOneRequest) {
  Pair pair(LargeOptions());
  Sparse here(pair.near_device, kLocal);
  Sparse there(pair.far_device, kLargest);
  ASSERT_NE(here.mr, nullptr);
  ASSERT_NE(there.mr, nullptr);
  for (uint64_t at = 0; at < kLocal; ++at) here.bytes[at] = static_cast<uint8_t>(at % 251 + 1);

  PostWhole(pair.near, IBV_WR_RDMA_WRITE, here, there);
  ASSERT_EQ(WaitLong(pair.near), IBV_WC_SUCCESS);
  for (uint64_t at = 0; at < kLargest; at += kStep) {
    ASSERT_EQ(there.bytes[at], at % kLocal % 251 + 1) << "byte " << at;
  }
  EXPECT_EQ(there.bytes[kLargest - 1], (kLocal - 1) % 251 + 1);

  // The last SGE's bytes remain.
  for (uint64_t at = kLargest - kLocal; at < kLargest; ++at) there.bytes[at] ^= 0xFF;
  PostWhole(pair.near, IBV_WR_RDMA_READ, here, there);
  ASSERT_EQ(WaitLong(pair.near), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(here.bytes, there.bytes + kLargest - kLocal, kLocal), 0);
}

TEST(VerbsLarge, OneByteMoreIsRefused) {
  Pair pair(LargeOptions());
  Sparse here(pair.near_device, kLargest);
  ASSERT_NE(here.mr, nullptr);
  const auto start = reinterpret_cast<uintptr_t>(here.bytes);
  ibv_sge sges[2] = {{start, uint32_t{1} << 31, here.mr->lkey}, {start, 1, here.mr->lkey}};
  ibv_send_wr wr = {};
  wr.sg_list = sges;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  // Either the post or the completion reports the error.
  if (pair.near.Post(wr) == 0) {
    EXPECT_EQ(pair.near.Wait().status, IBV_WC_LOC_LEN_ERR);
  }
}

}  // namespace
}  // namespace roci::testing
