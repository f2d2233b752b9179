// Memory windows, invalidation, ATOMIC WRITE, and atomics with a scattered result. Checks
// completions and all bytes.
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class Window {
 public:
  Window(ibv_pd* pd, ibv_mw_type type) : mw(ibv_alloc_mw(pd, type)) {
    EXPECT_NE(mw, nullptr) << strerror(errno);
  }
  ~Window() { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ibv_mw* const mw;
};

int Bind1(Endpoint& endpoint, ibv_mw* mw, ibv_mr* mr, uint64_t address, uint64_t length,
          unsigned access) {
  ibv_mw_bind bind = {};
  bind.wr_id = 5;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {mr, address, length, access};
  return ibv_bind_mw(endpoint.qp, mw, &bind);
}

int Bind2(Endpoint& endpoint, ibv_mw* mw, uint32_t key, ibv_mr* mr, uint64_t address,
          uint64_t length, unsigned access) {
  ibv_send_wr wr = {};
  wr.wr_id = 5;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = key;
  wr.bind_mw.bind_info = {mr, address, length, access};
  return endpoint.Post(wr);
}

int PostInvalidate(Endpoint& endpoint, ibv_wr_opcode opcode, uint32_t key) {
  ibv_send_wr wr = {};
  wr.wr_id = 6;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  return endpoint.Post(wr);
}

ibv_wc_status WriteStatus(Endpoint& from, const ibv_sge& sge, uint64_t remote, uint32_t rkey) {
  EXPECT_EQ(from.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, remote, rkey), 0);
  return from.Wait().status;
}

TEST(VerbsWindows, AreOffered) {
  const ibv_device_attr& attr = DeviceZero().attr;
  EXPECT_GT(attr.max_mw, 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A, 0u) << "one of both";
}

TEST(VerbsWindows, TypeOneGrantsItsRangeUntilUnbound) {
  Pair pair;
  Buffer here(pair.near_device, 256, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_1);
  const uint32_t old_key = window.mw->rkey;
  ASSERT_EQ(
      Bind1(pair.far, window.mw, there.mr, there.address() + 64, 256, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_NE(window.mw->rkey, old_key);
  EXPECT_EQ(window.mw->rkey >> 8, old_key >> 8);
  const ibv_wc wc = pair.far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(ibv_dereg_mr(there.mr), EBUSY) << "a window is bound to it";
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 256), there.address() + 64, window.mw->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data() + 64, 256), 0);
  EXPECT_EQ(there.data()[63], PatternByte(2, 63));
  EXPECT_EQ(there.data()[320], PatternByte(2, 320));
  ASSERT_EQ(Bind1(pair.far, window.mw, nullptr, 0, 0, 0), 0);
  pair.far.ExpectSuccess(5);
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 8), there.address() + 64, window.mw->rkey),
            IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsWindows, TypeOneServesEveryQueuePair) {
  Pair pair, other;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_1);
  ASSERT_EQ(Bind1(pair.far, window.mw, there.mr, there.address(), 64, kReadWrite), 0);
  pair.far.ExpectSuccess(5);
  EXPECT_EQ(WriteStatus(other.near, here.Sge(0, 64), there.address(), window.mw->rkey),
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data(), 64), 0);
}

TEST(VerbsWindows, TypeTwoServesOnlyItsQueuePair) {
  Pair pair, other;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(window.mw->rkey);
  ASSERT_EQ(Bind2(pair.far, window.mw, key, there.mr, there.address(), 64, kReadWrite), 0);
  pair.far.ExpectSuccess(5);
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 64), there.address(), key), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data(), 64), 0);
  EXPECT_EQ(WriteStatus(other.near, here.Sge(0, 64), there.address(), key), IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsWindows, ZeroBasedCountsFromItsStart) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(window.mw->rkey);
  ASSERT_EQ(Bind2(pair.far, window.mw, key, there.mr, there.address() + 100, 64,
                  kReadWrite | IBV_ACCESS_ZERO_BASED),
            0);
  pair.far.ExpectSuccess(5);
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 32), 32, key), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(here.data(), there.data() + 132, 32), 0);
  EXPECT_EQ(Bind1(pair.far, window.mw, there.mr, 0, 1, 0), EINVAL) << "type 2 by ibv_bind_mw";
}

TEST(VerbsWindows, InvalidatedLocallyThenBoundAgain) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_2);
  uint32_t key = window.mw->rkey;
  for (int round = 0; round < 300; ++round) {  // past all variants of the key
    const uint32_t old_key = key;
    key = ibv_inc_rkey(key);
    ASSERT_EQ(Bind2(pair.far, window.mw, key, there.mr, there.address(), 64, kReadWrite), 0);
    pair.far.ExpectSuccess(5);
    here.data()[0] = static_cast<uint8_t>(round);
    ASSERT_EQ(WriteStatus(pair.near, here.Sge(0, 64), there.address(), key), IBV_WC_SUCCESS);
    ASSERT_EQ(there.data()[0], static_cast<uint8_t>(round));
    ASSERT_EQ(PostInvalidate(pair.far, IBV_WR_LOCAL_INV, key), 0);
    const ibv_wc wc = pair.far.Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << round;
    ASSERT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
    ASSERT_NE(old_key, key);
  }
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 8), there.address(), key), IBV_WC_REM_ACCESS_ERR);
}

// Programs choose the low 8 bits of an R_Key; the index belongs to the window. Two windows may get
// the same low bits.
TEST(VerbsWindows, TypeTwoUsesOnlyTheKeyPart) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window one(pair.far_device.pd, IBV_MW_TYPE_2), other(pair.far_device.pd, IBV_MW_TYPE_2);
  constexpr uint32_t kWanted = 0x5A00 | 0x7B;
  for (const Window* window : {&one, &other}) {
    const uint32_t index = window->mw->rkey >> 8;
    ASSERT_EQ(Bind2(pair.far, window->mw, kWanted, there.mr, there.address(), 64, kReadWrite), 0);
    pair.far.ExpectSuccess(5);
    EXPECT_EQ(window->mw->rkey, index << 8 | 0x7B) << "the program gets the key";
    EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 64), there.address(), window->mw->rkey),
              IBV_WC_SUCCESS);
  }
  EXPECT_NE(one.mw->rkey, other.mw->rkey);
}

TEST(VerbsWindows, InvalidatedTwiceStaysInvalid) {
  Pair pair;
  Window window(pair.far_device.pd, IBV_MW_TYPE_2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(PostInvalidate(pair.far, IBV_WR_LOCAL_INV, window.mw->rkey), 0);
    pair.far.ExpectSuccess(6);
  }
}

TEST(VerbsWindows, InvalidatedByThePeersSend) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Window window(pair.far_device.pd, IBV_MW_TYPE_2);
  const uint32_t key = ibv_inc_rkey(window.mw->rkey);
  ASSERT_EQ(Bind2(pair.far, window.mw, key, there.mr, there.address(), 64, kReadWrite), 0);
  pair.far.ExpectSuccess(5);
  ASSERT_EQ(pair.far.PostRecv(there.Sge(1024, 64)), 0);
  ibv_sge sge = here.Sge(0, 64);
  ibv_send_wr wr = {};
  wr.wr_id = 6;
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(6);
  const ibv_wc wc = pair.far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(wc.invalidated_rkey, key);
  EXPECT_EQ(memcmp(here.data(), there.data() + 1024, 64), 0);
  EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 8), there.address(), key), IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsWindows, AreIdentifiedByTheirKeyInABind) {
  Pair pair;
  Buffer there(pair.far_device, 4096, 2, kBindable);
  Buffer here(pair.near_device, 4096, 1);
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    SCOPED_TRACE(type);
    Window window(pair.far_device.pd, type);
    const uint32_t handle = window.mw->handle;
    window.mw->handle = ~handle;
    if (type == IBV_MW_TYPE_1) {
      ASSERT_EQ(Bind1(pair.far, window.mw, there.mr, there.address(), 64, kReadWrite), 0);
    } else {
      ASSERT_EQ(Bind2(pair.far, window.mw, ibv_inc_rkey(window.mw->rkey), there.mr, there.address(),
                      64, kReadWrite),
                0);
    }
    window.mw->handle = handle;
    ASSERT_EQ(pair.far.Wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(WriteStatus(pair.near, here.Sge(0, 8), there.address(), window.mw->rkey),
              IBV_WC_SUCCESS);
  }
}

// IBTA vol 1, 9.9.6.3, class J: the receiver fails without a NAK.
TEST(VerbsWindows, SendMayNotInvalidateARegion) {
  Pair pair;
  Buffer there(pair.far_device, 4096, 2);
  ASSERT_EQ(pair.far.PostRecv(there.Sge(0, 64)), 0);
  ASSERT_EQ(PostInvalidate(pair.near, IBV_WR_SEND_WITH_INV, there.rkey()), 0);
  EXPECT_EQ(pair.far.Wait().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(pair.near.Wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VerbsWindows, WrongBindsAreBindErrors) {
  OpenDevice& device = DeviceOne();
  Buffer without(device, 4096, 1);
  Buffer bindable(device, 4096, 1, kBindable);
  Buffer read_only(device, 4096, 1, IBV_ACCESS_MW_BIND);
  const struct {
    const char* what;
    ibv_mr* mr;
    uint64_t offset, length;
    unsigned access;
  } kCases[] = {
      {"region without bind", without.mr, 0, 64, kReadWrite},
      {"beyond", bindable.mr, 4000, 100, kReadWrite},
      {"write on a read-only region", read_only.mr, 0, 64, kReadWrite},
      {"no bytes", bindable.mr, 0, 0, kReadWrite},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Pair pair;
    Window window(device.pd, IBV_MW_TYPE_2);
    const auto start = reinterpret_cast<uintptr_t>(c.mr->addr);
    ASSERT_EQ(Bind2(pair.far, window.mw, ibv_inc_rkey(window.mw->rkey), c.mr, start + c.offset,
                    c.length, c.access),
              0);
    EXPECT_EQ(pair.far.Wait().status, IBV_WC_MW_BIND_ERR);
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    ASSERT_EQ(ibv_query_qp(pair.far.qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  }
  Pair pair;
  ASSERT_EQ(PostInvalidate(pair.far, IBV_WR_LOCAL_INV, bindable.rkey()), 0);
  EXPECT_EQ(pair.far.Wait().status, IBV_WC_MW_BIND_ERR);
}

TEST(VerbsWindows, KeepTheirDomainInUse) {
  ibv_pd* pd = ibv_alloc_pd(DeviceZero().context);
  ASSERT_NE(pd, nullptr);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(VerbsWindows, LimitIsExact) {
  OpenDevice& device = DeviceZero();
  std::vector<ibv_mw*> windows;
  ibv_mw* mw = nullptr;
  while ((mw = ibv_alloc_mw(device.pd, IBV_MW_TYPE_1)) != nullptr) windows.push_back(mw);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(windows.size(), static_cast<size_t>(device.attr.max_mw));
  for (ibv_mw* each : windows) EXPECT_EQ(ibv_dealloc_mw(each), 0);
}

TEST(VerbsAtomicWrite, WritesEightBytes) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 4096, 2);
  ibv_sge sge = here.Sge(8, 8);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_ATOMIC_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = there.address() + 16;
  wr.wr.rdma.rkey = there.rkey();
  ASSERT_EQ(pair.near.Post(wr), 0);
  const ibv_wc wc = pair.near.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(memcmp(there.data() + 16, here.data() + 8, 8), 0);
  EXPECT_EQ(there.data()[15], PatternByte(2, 15));
  EXPECT_EQ(there.data()[24], PatternByte(2, 24));
  wr.wr.rdma.remote_addr += 4;
  ASSERT_EQ(pair.near.Post(wr), 0);
  EXPECT_EQ(pair.near.Wait().status, IBV_WC_REM_INV_REQ_ERR) << "not aligned";
}

TEST(VerbsAtomics, ResultMayBeScattered) {
  Pair pair;
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 64, 2);
  const uint64_t before = 0x1122334455667788;
  memcpy(there.data(), &before, 8);
  ibv_sge sges[] = {here.Sge(0, 3), here.Sge(16, 4), here.Sge(32, 1)};
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sges;
  wr.num_sge = 3;
  wr.wr.atomic.remote_addr = there.address();
  wr.wr.atomic.rkey = there.rkey();
  wr.wr.atomic.compare_add = 1;
  ASSERT_EQ(pair.near.Post(wr), 0);
  pair.near.ExpectSuccess(0);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&before);
  EXPECT_EQ(memcmp(here.data(), bytes, 3), 0);
  EXPECT_EQ(memcmp(here.data() + 16, bytes + 3, 4), 0);
  EXPECT_EQ(here.data()[32], bytes[7]);
  EXPECT_EQ(here.data()[3], PatternByte(1, 3));
  EXPECT_EQ(here.data()[33], PatternByte(1, 33));
}

}  // namespace
}  // namespace roci::testing
