// The largest message of RC, 2 GiB, in one request each way, through Debian's libibverbs.
#include <sys/mman.h>

#include <cstring>
#include <ctime>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 31;
constexpr uint64_t kStep =
    3 * 1024 * 1024 + 17;  // from one mark to the next; prime to pages and MTUs

// 2 GiB of zeros, registered, that take memory only where something is written.
struct Sparse {
  explicit Sparse(OpenDevice& device) {
    void* p = mmap(nullptr, kLargest, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    bytes = static_cast<uint8_t*>(p);
    mr = ibv_reg_mr(device.pd, p, kLargest,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  }
  ~Sparse() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    if (bytes != nullptr) munmap(bytes, kLargest);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  uint8_t* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

// Two SGEs of half the size each: the length field of one holds no more than 2^32 - 1 anyway.
void PostWhole(Endpoint& endpoint, ibv_wr_opcode opcode, Sparse& local, Sparse& remote) {
  const auto half = static_cast<uint32_t>(kLargest / 2);
  const auto start = reinterpret_cast<uintptr_t>(local.bytes);
  ibv_sge sges[2] = {{start, half, local.mr->lkey}, {start + half, half, local.mr->lkey}};
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = sges;
  wr.num_sge = 2;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(remote.bytes);
  wr.wr.rdma.rkey = remote.mr->rkey;
  ASSERT_EQ(endpoint.Post(wr), 0);
}

// Gigabytes of pages have to be found first, so this may take longer than Endpoint::Wait allows.
ibv_wc_status WaitLong(Endpoint& endpoint) {
  const time_t give_up = time(nullptr) + 60;
  ibv_wc wc = {};
  while (ibv_poll_cq(endpoint.cq, 1, &wc) == 0) {
    if (time(nullptr) > give_up) return IBV_WC_GENERAL_ERR;
  }
  return wc.status;
}

TEST(VerbsLarge, TwoGibibytesInOneRequest) {
  EndpointOptions options;
  options.mtu = IBV_MTU_4096;
  options.timeout = 18;
  Pair pair(options);
  Sparse here(pair.near_device);
  Sparse there(pair.far_device);
  ASSERT_NE(here.mr, nullptr);
  ASSERT_NE(there.mr, nullptr);
  for (uint64_t at = 0; at < kLargest; at += kStep)
    here.bytes[at] = static_cast<uint8_t>(at % 251 + 1);
  here.bytes[kLargest - 1] = 99;

  PostWhole(pair.near, IBV_WR_RDMA_WRITE, here, there);
  ASSERT_EQ(WaitLong(pair.near), IBV_WC_SUCCESS);
  for (uint64_t at = 0; at < kLargest; at += kStep) {
    ASSERT_EQ(there.bytes[at], at % 251 + 1) << "byte " << at;
  }
  EXPECT_EQ(there.bytes[kLargest - 1], 99);

  std::memset(here.bytes, 0, kLargest / 2);
  PostWhole(pair.near, IBV_WR_RDMA_READ, here, there);
  ASSERT_EQ(WaitLong(pair.near), IBV_WC_SUCCESS);
  for (uint64_t at = 0; at < kLargest; at += kStep) {
    ASSERT_EQ(here.bytes[at], at % 251 + 1) << "byte " << at;
  }
}

TEST(VerbsLarge, OneByteMoreIsRefused) {
  Pair pair;
  Sparse here(pair.near_device);
  ASSERT_NE(here.mr, nullptr);
  const auto start = reinterpret_cast<uintptr_t>(here.bytes);
  ibv_sge sges[2] = {{start, uint32_t{1} << 31, here.mr->lkey}, {start, 1, here.mr->lkey}};
  ibv_send_wr wr = {};
  wr.sg_list = sges;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  // Either the post says so, or the completion does.
  if (pair.near.Post(wr) == 0) {
    EXPECT_EQ(pair.near.Wait().status, IBV_WC_LOC_LEN_ERR);
  }
}

}  // namespace
}  // namespace roci::testing
