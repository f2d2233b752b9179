// Data transfer between two devices: every operation of RC, through Debian's libibverbs.
#include <arpa/inet.h>

#include <cstring>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr size_t kSizes[] = {1,    2,    3,    4,    5,    63,   64,    65,    192,   193,
                             1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 1048576};
constexpr size_t kBiggest = 1048576;

// Expects `length` bytes at `offset` of `buffer` to be the pattern of `seed` from `from` on, and
// the bytes before and behind to be the pattern `around` at their own offsets.
void ExpectPattern(Buffer& buffer, size_t offset, size_t length, uint32_t seed, size_t from,
                   uint32_t around) {
  for (size_t i = 0; i < length; ++i) {
    if (buffer.data()[offset + i] != PatternByte(seed, from + i)) {
      ADD_FAILURE() << "byte " << i << " of " << length;
      break;
    }
  }
  if (offset > 0) {
    EXPECT_EQ(buffer.data()[offset - 1], PatternByte(around, offset - 1)) << "before the data";
  }
  if (offset + length < buffer.size()) {
    EXPECT_EQ(buffer.data()[offset + length], PatternByte(around, offset + length))
        << "behind the data";
  }
}

class VerbsData : public ::testing::Test {
 protected:
  Pair pair;
  Endpoint& near = pair.near;
  Endpoint& far = pair.far;
  Buffer here{pair.near_device, kBiggest + 16, 1};
  Buffer there{pair.far_device, kBiggest + 16, 2};
};

TEST_F(VerbsData, Sends) {
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    there.Fill(2);
    ASSERT_EQ(far.PostRecv(there.Sge(5, size), 77), 0);
    ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(3, size)), 0);
    near.ExpectSuccess();
    const ibv_wc wc = far.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.wr_id, 77u);
    EXPECT_EQ(wc.byte_len, size);
    EXPECT_EQ(wc.qp_num, far.qp->qp_num);
    EXPECT_EQ(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
    ExpectPattern(there, 5, size, 1, 3, 2);
  }
}

TEST_F(VerbsData, SendsNothing) {
  ASSERT_EQ(far.PostRecv(there.Sge(0, 16)), 0);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htonl(0xCAFEBABE);
  ASSERT_EQ(near.Post(wr), 0);
  near.ExpectSuccess();
  const ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 0u);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(ntohl(wc.imm_data), 0xCAFEBABEu);
}

TEST_F(VerbsData, Writes) {
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    there.Fill(2);
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(1, size), IBV_SEND_SIGNALED,
                            there.address() + 7, there.rkey()),
              0);
    const ibv_wc wc = near.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
    ExpectPattern(there, 7, size, 1, 1, 2);
  }
  EXPECT_TRUE(far.IsQuiet(5));
}

TEST_F(VerbsData, WritesWithImmediate) {
  ASSERT_EQ(far.PostRecv(there.Sge(0, 0), 9), 0);
  ibv_sge sge = here.Sge(0, 5000);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htonl(12345);
  wr.wr.rdma.remote_addr = there.address() + 100;
  wr.wr.rdma.rkey = there.rkey();
  ASSERT_EQ(near.Post(wr), 0);
  near.ExpectSuccess();
  const ibv_wc wc = far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.wr_id, 9u);
  EXPECT_EQ(wc.byte_len, 5000u);
  EXPECT_EQ(ntohl(wc.imm_data), 12345u);
  ExpectPattern(there, 100, 5000, 1, 0, 2);
}

TEST_F(VerbsData, Reads) {
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    here.Fill(1);
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_READ, here.Sge(9, size), IBV_SEND_SIGNALED,
                            there.address() + 2, there.rkey()),
              0);
    const ibv_wc wc = near.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(wc.byte_len, size);
    ExpectPattern(here, 9, size, 2, 2, 1);
  }
}

TEST_F(VerbsData, ComparesSwapsAndAdds) {
  auto* target = reinterpret_cast<uint64_t*>(there.data() + 64);
  auto* result = reinterpret_cast<uint64_t*>(here.data() + 128);
  *target = 100;
  ibv_sge sge = here.Sge(128, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = there.address() + 64;
  wr.wr.atomic.rkey = there.rkey();

  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic.compare_add = ~uint64_t{0};  // minus one
  ASSERT_EQ(near.Post(wr), 0);
  ibv_wc wc = near.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(*result, 100u);
  EXPECT_EQ(*target, 99u);

  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic.compare_add = 99;
  wr.wr.atomic.swap = 0x1122334455667788;
  ASSERT_EQ(near.Post(wr), 0);
  wc = near.Wait();
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(*result, 99u);
  EXPECT_EQ(*target, 0x1122334455667788u);

  ASSERT_EQ(near.Post(wr), 0);  // does not match any more
  near.ExpectSuccess();
  EXPECT_EQ(*result, 0x1122334455667788u);
  EXPECT_EQ(*target, 0x1122334455667788u);
}

TEST_F(VerbsData, CopiesInlineDataAtPost) {
  ASSERT_GE(near.cap.max_inline_data, 64u);
  uint8_t local[64];
  for (size_t i = 0; i < sizeof(local); ++i) local[i] = PatternByte(5, i);
  const ibv_sge sge = {reinterpret_cast<uintptr_t>(local), sizeof(local), 0};
  ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                          there.address(), there.rkey()),
            0);
  memset(local, 0, sizeof(local));
  near.ExpectSuccess();
  ExpectPattern(there, 0, 64, 5, 0, 2);
}

TEST(VerbsInline, AcceptsTheGrantedSize) {
  EndpointOptions options;
  options.max_inline = 1024;
  Pair pair(options);
  const uint32_t granted = pair.near.cap.max_inline_data;
  ASSERT_GE(granted, 512u);
  Buffer there(pair.far_device, 4096, 2);
  for (const uint32_t bytes : {1u, 511u, 512u, granted}) {
    std::vector<uint8_t> local(bytes);
    for (size_t i = 0; i < bytes; ++i) local[i] = PatternByte(5, i);
    const ibv_sge sge = {reinterpret_cast<uintptr_t>(local.data()), bytes, 0};
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                                 there.address(), there.rkey()),
              0);
    memset(local.data(), 0, bytes);
    pair.near.ExpectSuccess();
    ExpectPattern(there, 0, bytes, 5, 0, 2);
    there.Fill(2);
  }
  std::vector<uint8_t> local(granted + 1);
  const ibv_sge sge = {reinterpret_cast<uintptr_t>(local.data()), granted + 1, 0};
  EXPECT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                               there.address(), there.rkey()),
            EINVAL);
}

TEST_F(VerbsData, FreesTheSlotsOfUnsignalledRequests) {
  const uint32_t depth = near.cap.max_send_wr;
  uint64_t posted = 0;
  for (int round = 0; round < 10; ++round) {
    for (uint32_t i = 0; i < depth; ++i, ++posted) {
      const unsigned flags = i + 1 == depth ? IBV_SEND_SIGNALED : 0;
      ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(posted % 4096, 200), flags,
                              there.address() + posted * 200, there.rkey(), posted),
                0)
          << posted;
    }
    near.ExpectSuccess(posted - 1);
  }
  for (uint64_t i = 0; i < posted; ++i) {
    for (size_t b = 0; b < 200; ++b) {
      ASSERT_EQ(there.data()[i * 200 + b], PatternByte(1, i % 4096 + b)) << i << ' ' << b;
    }
  }
  EXPECT_TRUE(near.IsQuiet(5));
}

TEST_F(VerbsData, FillsTheSendQueueExactly) {
  const uint32_t depth = near.cap.max_send_wr;
  // Nothing completes soon while the receiver has no buffer.
  uint32_t posted = 0;
  ibv_sge sge = here.Sge(0, 8);
  while (posted <= depth && near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED,
                                          there.address(), there.rkey(), posted) == 0) {
    ++posted;
  }
  EXPECT_EQ(posted, depth) << "completions that are not polled do not free slots";
  for (uint32_t i = 0; i < posted; ++i) near.ExpectSuccess(i);
  EXPECT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, there.address(), there.rkey()),
            0);
  near.ExpectSuccess();
}

TEST_F(VerbsData, WaitsAtAFence) {
  // A SEND sends the data of a READ: without the fence it would send the old bytes. Small payloads
  // might be copied when they are posted.
  for (const uint32_t length : {8u, 256u, 4096u}) {
    for (uint32_t round = 0; round < 30; ++round) {
      there.Fill(round + 10);
      here.Fill(1);
      ASSERT_EQ(far.PostRecv(there.Sge(65536, length), 3), 0);
      ASSERT_EQ(
          near.PostSend(IBV_WR_RDMA_READ, here.Sge(0, length), 0, there.address(), there.rkey()),
          0);
      ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge(0, length), IBV_SEND_SIGNALED | IBV_SEND_FENCE),
                0);
      near.ExpectSuccess();
      far.ExpectSuccess(3);
      ExpectPattern(there, 65536, length, round + 10, 0, round + 10);
    }
  }
}

TEST_F(VerbsData, CountsUpThroughManyMessages) {
  // Wraps rings, completion queue and the low bits of PSNs more than once.
  constexpr uint32_t kMessages = 5000;
  uint32_t received = 0;
  uint32_t sent = 0;
  for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(far.PostRecv(there.Sge(i * 64, 64), i), 0);
  uint32_t posted = 0;
  uint32_t completed = 0;
  while (received < kMessages || completed < kMessages) {
    while (sent < kMessages && posted - completed < 16) {
      memcpy(here.data() + (sent % 64) * 8, &sent, sizeof(sent));
      ASSERT_EQ(near.PostSend(IBV_WR_SEND, here.Sge((sent % 64) * 8, 4)), 0);
      ++sent;
      ++posted;
    }
    ibv_wc wc;
    while (ibv_poll_cq(near.cq, 1, &wc) > 0) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      ++completed;
    }
    while (ibv_poll_cq(far.cq, 1, &wc) > 0) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      uint32_t value;
      memcpy(&value, there.data() + wc.wr_id * 64, sizeof(value));
      ASSERT_EQ(value, received);
      ++received;
      ASSERT_EQ(far.PostRecv(there.Sge(wc.wr_id * 64, 64), wc.wr_id), 0);
    }
  }
}

TEST(VerbsScatterGather, AcceptsTheAdvertisedNumberOfSges) {
  const auto max_sge = static_cast<uint32_t>(DeviceZero().attr.max_sge);
  EndpointOptions options;
  options.max_sge = max_sge;
  Pair pair(options);
  Buffer here(pair.near_device, 65536, 1);
  Buffer there(pair.far_device, 65536, 2);
  std::vector<ibv_sge> out(max_sge);
  std::vector<ibv_sge> in(max_sge);
  std::vector<uint8_t> expected;
  size_t room = 0;
  for (uint32_t i = 0; i < max_sge; ++i) {
    const size_t length = 1 + i * 7 % 97;
    out[i] = here.Sge((max_sge - 1 - i) * 1000, length);
    for (size_t b = 0; b < length; ++b) {
      expected.push_back(PatternByte(1, (max_sge - 1 - i) * 1000 + b));
    }
    in[i] = there.Sge(i * 2000, 101 - length % 50);
    room += in[i].length;
  }
  ASSERT_GE(room, expected.size());
  ibv_recv_wr recv = {};
  recv.wr_id = 2;
  recv.sg_list = in.data();
  recv.num_sge = static_cast<int>(max_sge);
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(ibv_post_recv(pair.far.qp, &recv, &bad_recv), 0);
  ibv_send_wr send = {};
  send.wr_id = 1;
  send.sg_list = out.data();
  send.num_sge = static_cast<int>(max_sge);
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(pair.near.Post(send), 0);
  pair.near.ExpectSuccess();
  const ibv_wc wc = pair.far.Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, expected.size());
  size_t at = 0;
  for (uint32_t i = 0; i < max_sge; ++i) {
    for (size_t b = 0; b < in[i].length && at < expected.size(); ++b, ++at) {
      ASSERT_EQ(there.data()[i * 2000 + b], expected[at]) << "byte " << at;
    }
  }
  EXPECT_EQ(at, expected.size());
}

TEST(VerbsLoopback, ConnectsTwoQueuePairsOfOneDevice) {
  Endpoint first(DeviceZero());
  Endpoint second(DeviceZero());
  ASSERT_EQ(first.Connect(second), 0);
  ASSERT_EQ(second.Connect(first), 0);
  Buffer source(DeviceZero(), 10000, 1);
  Buffer target(DeviceZero(), 10000, 2);
  ASSERT_EQ(first.PostSend(IBV_WR_RDMA_WRITE, source.Sge(0, 10000), IBV_SEND_SIGNALED,
                           target.address(), target.rkey()),
            0);
  first.ExpectSuccess();
  EXPECT_EQ(memcmp(source.data(), target.data(), 10000), 0);
}

}  // namespace
}  // namespace roci::testing
