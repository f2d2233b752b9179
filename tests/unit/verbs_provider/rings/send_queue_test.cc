// Send requests in the send queue ring.
#include "verbs_provider/rings/send_queue.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/single_step.h"
#include "tests/unit/verbs_provider/rings/rings_fixture.h"

namespace roci::provider {
namespace {

constexpr uint32_t kKey = 0x1234'56'78;

ibv_sge SgeOf(const void* data, size_t length, uint32_t key = kKey) {
  return {reinterpret_cast<uintptr_t>(data), static_cast<uint32_t>(length), key};
}

ibv_send_wr Request(ibv_wr_opcode opcode, ibv_sge* sges, int count, unsigned flags = 0) {
  ibv_send_wr wr = {};
  wr.wr_id = 0xABCDEF0123456789;
  wr.opcode = opcode;
  wr.sg_list = sges;
  wr.num_sge = count;
  wr.send_flags = flags;
  return wr;
}

int Post(FakeSendQueue& fake, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return PostSendList(fake.queue, &wr, &bad);
}

TEST(SendQueue, WritesEveryFieldOfAWrite) {
  FakeSendQueue fake(4, 128);
  char data[100] = {};
  ibv_sge sges[] = {SgeOf(data, 40), SgeOf(data + 40, 60, 99)};
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE_WITH_IMM, sges, 2,
                           IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED);
  wr.imm_data = 0x01020304;
  wr.wr.rdma.remote_addr = 0x7777'8888'9999'0000;
  wr.wr.rdma.rkey = 0xFEEDBEEF;
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_EQ(fake.queue.shared->producer, 1u);
  const roci_abi_send_wqe& entry = fake.Entry(0);
  EXPECT_EQ(entry.wr_id, wr.wr_id);
  EXPECT_EQ(entry.opcode, ROCI_ABI_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(entry.flags, ROCI_ABI_SEND_SIGNALED | ROCI_ABI_SEND_FENCE | ROCI_ABI_SEND_SOLICITED);
  EXPECT_EQ(entry.num_sge, 2);
  EXPECT_EQ(entry.immediate, 0x01020304u);
  EXPECT_EQ(entry.remote_va, 0x7777'8888'9999'0000u);
  EXPECT_EQ(entry.rkey, 0xFEEDBEEFu);
  const roci_abi_sge* out = fake.Sges(0);
  EXPECT_EQ(out[0].va, sges[0].addr);
  EXPECT_EQ(out[0].length, 40u);
  EXPECT_EQ(out[0].lkey, kKey);
  EXPECT_EQ(out[1].va, sges[1].addr);
  EXPECT_EQ(out[1].length, 60u);
  EXPECT_EQ(out[1].lkey, 99u);
}

TEST(SendQueue, WritesAtomics) {
  FakeSendQueue fake(4, 128);
  uint64_t result = 0;
  ibv_sge sge = SgeOf(&result, 8);
  ibv_send_wr wr = Request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1);
  wr.wr.atomic.remote_addr = 0x10;
  wr.wr.atomic.rkey = 0x20;
  wr.wr.atomic.compare_add = 0x30;
  wr.wr.atomic.swap = 0x40;
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_EQ(fake.Entry(0).remote_va, 0x10u);
  EXPECT_EQ(fake.Entry(0).rkey, 0x20u);
  EXPECT_EQ(fake.Entry(0).u.atomic.compare_add, 0x30u);
  EXPECT_EQ(fake.Entry(0).u.atomic.swap, 0x40u);
}

TEST(SendQueue, WritesDatagramAddresses) {
  FakeSendQueue fake(4, 128, IBV_QPT_UD);
  AhHead ah = {};
  ah.ah.handle = 17;
  ibv_send_wr wr = Request(IBV_WR_SEND, nullptr, 0);
  wr.wr.ud.ah = &ah.ah;
  wr.wr.ud.remote_qpn = 0xABCDEF;
  wr.wr.ud.remote_qkey = 0x11111111;
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_EQ(fake.Entry(0).u.ud.address_handle, 17u);
  EXPECT_EQ(fake.Entry(0).u.ud.remote_qpn, 0xABCDEFu);
  EXPECT_EQ(fake.Entry(0).u.ud.remote_qkey, 0x11111111u);
  wr.wr.ud.ah = nullptr;
  EXPECT_EQ(Post(fake, wr), EINVAL);
  int of_another;
  ah.session = reinterpret_cast<VerbsSession*>(&of_another);
  wr.wr.ud.ah = &ah.ah;
  EXPECT_EQ(Post(fake, wr), EINVAL);
}

// IBTA vol 1, 10.6.7.2.2: the program chooses only the low 8 bits of a window's new key.
TEST(SendQueue, BindsTheGivenWindow) {
  FakeSendQueue fake(4, 128);
  ibv_mr region = {};
  region.lkey = 0x501;
  ibv_mw window = {};
  window.rkey = 0x705;
  window.type = IBV_MW_TYPE_2;
  ibv_send_wr wr = Request(IBV_WR_BIND_MW, nullptr, 0);
  wr.bind_mw.mw = &window;
  wr.bind_mw.rkey = 0xABCD42;
  wr.bind_mw.bind_info = {&region, 0x2000, 100, IBV_ACCESS_REMOTE_WRITE};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(PostSendList(fake.queue, &wr, &bad), 0);
  EXPECT_EQ(window.rkey, 0x742u);
  const roci_abi_send_wqe& entry = fake.Entry(0);
  EXPECT_EQ(entry.u.bind.window, 7u);
  EXPECT_EQ(entry.u.bind.new_key, 0x742u);
  EXPECT_EQ(entry.u.bind.region_key, 0x501u);
  EXPECT_EQ(entry.u.bind.length, 100u);
  EXPECT_EQ(entry.u.bind.access, unsigned{IBV_ACCESS_REMOTE_WRITE});
  EXPECT_EQ(entry.remote_va, 0x2000u);
}

TEST(SendQueue, CopiesInlineDataWithoutCheckingKeys) {
  FakeSendQueue fake(4, 128);
  std::string first = "hello, ";
  std::string second = "world";
  ibv_sge sges[] = {SgeOf(first.data(), first.size(), 0), SgeOf(nullptr, 0),
                    SgeOf(second.data(), second.size(), 0)};
  ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 3, IBV_SEND_INLINE)), 0);
  first = second = "*************";
  EXPECT_EQ(fake.Entry(0).flags, ROCI_ABI_SEND_INLINE);
  EXPECT_EQ(fake.Entry(0).num_sge, 0);
  EXPECT_EQ(fake.Entry(0).inline_length, 12u);
  EXPECT_EQ(std::string(fake.Inline(0), 12), "hello, world");
}

TEST(SendQueue, BoundsInlineData) {
  FakeSendQueue fake(4, 128);
  fake.queue.max_inline = 60;
  char data[64] = {};
  ibv_sge sge = SgeOf(data, 60);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, &sge, 1, IBV_SEND_INLINE)), 0);
  sge.length = 61;
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, &sge, 1, IBV_SEND_INLINE)), EINVAL);
  // A sum that wraps in 32 bits.
  ibv_sge two[] = {SgeOf(data, 0xFFFFFFFF), SgeOf(data, 2)};
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, two, 2, IBV_SEND_INLINE)), EINVAL);
  sge.length = 8;
  EXPECT_EQ(Post(fake, Request(IBV_WR_RDMA_READ, &sge, 1, IBV_SEND_INLINE)), EINVAL);
  EXPECT_EQ(Post(fake, Request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, IBV_SEND_INLINE)), EINVAL);
  EXPECT_EQ(fake.queue.shared->producer, 1u);
}

class AutoInline : public testing::Test {
 protected:
  AutoInline() {
    fake.queue.auto_inline = 32;
    EXPECT_TRUE(
        fake.keys.Add(kKey, FakeSendQueue::kPd, 0x5000, reinterpret_cast<uintptr_t>(data), 64));
  }
  // Whether a request for `length` bytes at iova `va` was copied into the slot.
  bool IsCopied(ibv_wr_opcode opcode, uint64_t va, uint32_t length, uint32_t key = kKey,
                unsigned flags = 0) {
    ibv_sge sge = {va, length, key};
    const uint32_t index = fake.queue.head;
    EXPECT_EQ(Post(fake, Request(opcode, &sge, 1, flags)), 0);
    fake.queue.tail = fake.queue.head;
    const roci_abi_send_wqe& entry = fake.Entry(index);
    if ((entry.flags & ROCI_ABI_SEND_INLINE) != 0) {
      EXPECT_EQ(entry.inline_length, length);
      EXPECT_EQ(entry.num_sge, 0);
      EXPECT_EQ(memcmp(fake.Inline(index), data + (va - 0x5000), length), 0);
      return true;
    }
    EXPECT_EQ(entry.num_sge, 1);
    EXPECT_EQ(fake.Sges(index)->va, va);
    EXPECT_EQ(fake.Sges(index)->length, length);
    return false;
  }

  FakeSendQueue fake{4, 128};
  char data[65] = "The quick brown fox jumps over the lazy dog, and then once again";
};

TEST_F(AutoInline, CopiesSmallSendsAndWrites) {
  EXPECT_TRUE(IsCopied(IBV_WR_SEND, 0x5000, 32));
  EXPECT_TRUE(IsCopied(IBV_WR_SEND_WITH_IMM, 0x5010, 1));
  EXPECT_TRUE(IsCopied(IBV_WR_RDMA_WRITE, 0x5020, 32));
  EXPECT_TRUE(IsCopied(IBV_WR_RDMA_WRITE_WITH_IMM, 0x503F, 1));
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 33)) << "too long";
}

TEST_F(AutoInline, LeavesReadsAndAtomicsToTheDaemon) {
  EXPECT_FALSE(IsCopied(IBV_WR_RDMA_READ, 0x5000, 8));
  EXPECT_FALSE(IsCopied(IBV_WR_ATOMIC_FETCH_AND_ADD, 0x5000, 8));
}

// An earlier READ may still have to write the data of a fenced request (IBTA vol 1, 10.8.3.3).
TEST_F(AutoInline, LeavesFencedRequestsToTheDaemon) {
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8, kKey, IBV_SEND_FENCE));
  EXPECT_FALSE(IsCopied(IBV_WR_RDMA_WRITE, 0x5000, 8, kKey, IBV_SEND_FENCE));
  EXPECT_TRUE(IsCopied(IBV_WR_SEND, 0x5000, 8, kKey, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
}

TEST_F(AutoInline, LeavesBadKeysToTheDaemon) {
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8, kKey + 1)) << "another variant";
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8, 0)) << "no key";
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8, 0xFFFFFFFF)) << "no key";
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x4FFF, 8)) << "before the region";
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5039, 8)) << "beyond the region";
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, ~uint64_t{0}, 8)) << "wraps";
  fake.queue.pd = FakeSendQueue::kPd + 1;
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8)) << "another PD";
  fake.queue.pd = FakeSendQueue::kPd;
  EXPECT_TRUE(IsCopied(IBV_WR_SEND, 0x5000, 8));
  fake.keys.Remove(kKey);
  EXPECT_FALSE(IsCopied(IBV_WR_SEND, 0x5000, 8)) << "deregistered";
}

TEST_F(AutoInline, CopiesNothingIfTheSecondKeyIsBad) {
  ibv_sge sges[] = {{0x5000, 8, kKey}, {0x5000, 8, kKey + 1}};
  ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 2)), 0);
  EXPECT_EQ(fake.Entry(0).flags, 0);
  EXPECT_EQ(fake.Entry(0).inline_length, 0u);
  EXPECT_EQ(fake.Entry(0).num_sge, 2);
  EXPECT_EQ(fake.Sges(0)[0].lkey, kKey);
  EXPECT_EQ(fake.Sges(0)[1].lkey, kKey + 1);
}

// Whatever the request's other fields point to.
TEST(SendQueue, TakesMisplacedOperationsForTheDaemonToFail) {
  FakeSendQueue fake(4, 128, IBV_QPT_UD);
  fake.queue.opcodes.misplaced = abi::OpcodeBit(IBV_WR_RDMA_READ);
  ibv_send_wr wr = Request(IBV_WR_RDMA_READ, nullptr, 3);
  memset(&wr.wr, 0xA5, sizeof(wr.wr));
  EXPECT_EQ(Post(fake, wr), 0);
  EXPECT_EQ(fake.Entry(0).opcode, ROCI_ABI_WR_RDMA_READ);
  EXPECT_EQ(fake.Entry(0).num_sge, 0);
  wr.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(Post(fake, wr), EINVAL);
}

TEST(SendQueue, RefusesOperationsThatTheTypeLacks) {
  const struct {
    ibv_qp_type type;
    int opcode;
    int error;
  } kCases[] = {
      {IBV_QPT_RC, IBV_WR_RDMA_READ, 0},
      {IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, 0},
      {IBV_QPT_RC, IBV_WR_BIND_MW, EINVAL},  // without a window
      {IBV_QPT_RC, IBV_WR_LOCAL_INV, 0},
      {IBV_QPT_RC, IBV_WR_SEND_WITH_INV, 0},
      {IBV_QPT_RC, IBV_WR_ATOMIC_WRITE, 0},
      {IBV_QPT_UC, IBV_WR_LOCAL_INV, 0},
      {IBV_QPT_UC, IBV_WR_SEND_WITH_INV, EOPNOTSUPP},
      {IBV_QPT_UC, IBV_WR_ATOMIC_WRITE, EINVAL},
      {IBV_QPT_UD, IBV_WR_LOCAL_INV, EINVAL},
      {IBV_QPT_RC, IBV_WR_TSO, EINVAL},
      {IBV_QPT_RAW_PACKET, IBV_WR_TSO, EOPNOTSUPP},
      {IBV_QPT_RC, ROCI_ABI_WR_FLUSH, EINVAL},  // rocidv.h has the call
      {IBV_QPT_RC, ROCI_ABI_WR_REG_LIST, EINVAL},
      {IBV_QPT_RC, 31, EINVAL},
      {IBV_QPT_RC, 32, EINVAL},
      {IBV_QPT_RC, -1, EINVAL},
      {IBV_QPT_UC, IBV_WR_RDMA_WRITE, 0},
      {IBV_QPT_UC, IBV_WR_RDMA_READ, EINVAL},
      {IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD, EINVAL},
      {IBV_QPT_UD, IBV_WR_RDMA_WRITE, EINVAL},
  };
  for (const auto& c : kCases) {
    FakeSendQueue fake(4, 128, c.type);
    ibv_send_wr wr = Request(IBV_WR_SEND, nullptr, 0);
    memcpy(&wr.opcode, &c.opcode, sizeof(wr.opcode));  // some are not values of the enum
    EXPECT_EQ(Post(fake, wr), c.error) << c.type << ' ' << c.opcode;
    EXPECT_EQ(fake.queue.shared->producer, c.error == 0 ? 1u : 0u);
  }
}

TEST(SendQueue, RefusesTooManySgesAndUnknownFlags) {
  FakeSendQueue fake(4, 64 + 3 * 16 + 16);
  fake.queue.max_sge = 3;
  ibv_sge sges[4] = {};
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 3)), 0);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 4)), EINVAL);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, sges, -1)), EINVAL);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 1, IBV_SEND_IP_CSUM)), EINVAL);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, sges, 1, 1u << 30)), EINVAL);
}

TEST(SendQueue, ChecksumsAreForRawPackets) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    EXPECT_EQ(SlotFlagsOf(type, true) & IBV_SEND_IP_CSUM, 0u) << type;
  }
  ibv_sge sge = {};
  const ibv_send_wr wr = Request(IBV_WR_SEND, &sge, 1, IBV_SEND_IP_CSUM | IBV_SEND_SIGNALED);
  FakeSendQueue raw(4, 128, IBV_QPT_RAW_PACKET);
  EXPECT_EQ(Post(raw, wr), 0);
  EXPECT_EQ(raw.Entry(0).flags, ROCI_ABI_SEND_IP_CHECKSUM | ROCI_ABI_SEND_SIGNALED);
  raw.queue.slot_flags = SlotFlagsOf(IBV_QPT_RAW_PACKET, false);
  EXPECT_EQ(Post(raw, wr), EINVAL) << "the daemon does not know it";
}

TEST(SendQueue, PostsAListUpToTheFirstBadRequest) {
  FakeSendQueue fake(8, 128);
  ibv_send_wr wrs[4];
  for (int i = 0; i < 4; ++i) {
    wrs[i] = Request(i == 2 ? IBV_WR_TSO : IBV_WR_SEND, nullptr, 0);
    wrs[i].wr_id = static_cast<uint64_t>(i);
    wrs[i].next = i < 3 ? &wrs[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(PostSendList(fake.queue, wrs, &bad), EINVAL);
  EXPECT_EQ(bad, &wrs[2]);
  EXPECT_EQ(fake.queue.shared->producer, 2u);
  EXPECT_EQ(fake.Entry(1).wr_id, 1u);
}

TEST(SendQueue, IsFullAtItsLimitAndAcrossTheWrapOfIndices) {
  FakeSendQueue fake(8, 128);
  fake.queue.limit = 5;
  fake.queue.head = 0xFFFFFFFD;
  fake.queue.tail = 0xFFFFFFFD;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
    EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), ENOMEM);
    fake.queue.tail += 1;
    EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
    EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), ENOMEM);
    fake.queue.tail = fake.queue.head;
  }
  EXPECT_EQ(fake.queue.shared->producer, 0xFFFFFFFDu + 18);
}

TEST(SendQueue, RestartsAtTheFirstSlotWhenEmpty) {
  FakeSendQueue fake(8, 128);
  fake.queue.may_restart = true;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
  EXPECT_EQ(fake.queue.shared->restarts, 0u) << "nothing was left out";
  fake.queue.tail = 2;
  ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
  EXPECT_EQ(fake.queue.shared->producer, 4u) << "not empty";
  fake.queue.tail = 4;
  ibv_send_wr wrong = Request(IBV_WR_DRIVER1, nullptr, 0);
  EXPECT_EQ(Post(fake, wrong), EINVAL);
  EXPECT_EQ(fake.queue.shared->producer, 4u);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
  EXPECT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), ENOMEM);
  EXPECT_EQ(fake.queue.shared->restarts, 1u);
  EXPECT_EQ(fake.queue.shared->start, 8u);
  EXPECT_EQ(fake.queue.shared->producer, 16u);
  fake.queue.tail = 16;
  ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
  EXPECT_EQ(fake.queue.shared->producer, 17u) << "at the first slot already";
  EXPECT_EQ(fake.queue.shared->restarts, 1u);
}

TEST(SendQueue, EndsACircularList) {
  FakeSendQueue fake(8, 128);
  ibv_send_wr wr = Request(IBV_WR_SEND, nullptr, 0);
  wr.next = &wr;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(PostSendList(fake.queue, &wr, &bad), ENOMEM);
  EXPECT_EQ(fake.queue.shared->producer, 8u);
}

TEST(SendQueue, OverwritesAllFieldsOfTheOldEntry) {
  FakeSendQueue fake(1, 128);
  ibv_sge sge = SgeOf("abc", 3);
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, IBV_SEND_INLINE);
  wr.imm_data = ~0u;
  ASSERT_EQ(Post(fake, wr), 0);
  fake.queue.tail = 1;
  ASSERT_EQ(Post(fake, Request(IBV_WR_SEND, nullptr, 0)), 0);
  EXPECT_EQ(fake.Entry(1).flags, 0);
  EXPECT_EQ(fake.Entry(1).inline_length, 0u);
  EXPECT_EQ(fake.Entry(1).num_sge, 0);
}

// At any time, all entries before the producer index are complete.
TEST(SendQueue, PublishesEntriesThatAreWritten) {
  FakeSendQueue fake(4, 128);
  ibv_sge sge = {0x1000, 10, 7};
  ibv_send_wr second = {};
  second.wr_id = 2;
  second.sg_list = &sge;
  second.num_sge = 1;
  second.opcode = IBV_WR_SEND;
  ibv_send_wr first = second;
  first.wr_id = 1;
  first.next = &second;
  const auto* shared = reinterpret_cast<const std::byte*>(fake.queue.shared);
  const size_t slots = static_cast<size_t>(fake.queue.slots - shared);
  uint32_t published = 0;
  const auto check = [&](std::span<const std::byte> ring) {
    roci_abi_queue header;
    memcpy(&header, ring.data(), sizeof(header));
    published = header.producer;
    for (uint32_t i = 0; i < published; ++i) {
      roci_abi_send_wqe entry;
      roci_abi_sge element;
      memcpy(&entry, ring.data() + slots + size_t{i} * 128, sizeof(entry));
      memcpy(&element, ring.data() + slots + size_t{i} * 128 + sizeof(entry), sizeof(element));
      EXPECT_EQ(entry.wr_id, i + 1);
      EXPECT_EQ(entry.num_sge, 1u);
      EXPECT_EQ(element.lkey, 7u);
    }
    return !::testing::Test::HasFailure();
  };
  ibv_send_wr* bad = nullptr;
  const uint32_t looks = ForEachStep(
      {shared, slots + 256}, [&] { PostSendList(fake.queue, &first, &bad); }, check);
  if (looks == 0) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(published, 2u);
}

TEST(SendQueue, RingsOnlyIfArmedAndWakesOnlyASleepingDaemon) {
  FakeSendQueue fake(8, 128);
  const ibv_send_wr wr = Request(IBV_WR_SEND, nullptr, 0);
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_FALSE(fake.doorbells.IsRung(FakeSendQueue::kHandle));
  fake.queue.shared->armed = 1;
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_TRUE(fake.doorbells.IsRung(FakeSendQueue::kHandle));
  EXPECT_EQ(fake.doorbells.TakeWakes(), 0u);
  fake.doorbells.page().sleeping = 1;
  ASSERT_EQ(Post(fake, wr), 0);
  ASSERT_EQ(Post(fake, wr), 0);
  EXPECT_EQ(fake.doorbells.TakeWakes(), 1u) << "once per sleep";
  EXPECT_EQ(Post(fake, Request(IBV_WR_TSO, nullptr, 0)), EINVAL);
  fake.doorbells.Clear();
  fake.doorbells.page().sleeping = 1;
  EXPECT_EQ(Post(fake, Request(IBV_WR_TSO, nullptr, 0)), EINVAL);
  EXPECT_FALSE(fake.doorbells.IsRung(FakeSendQueue::kHandle)) << "nothing was posted";
}

// Many threads post to one queue while another consumes: every request arrives once, complete, and
// in the order of its thread.
TEST(SendQueue, TakesPostsOfManyThreads) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kPerThread = 20000;
  FakeSendQueue fake(64, 128);
  std::vector<std::thread> posters;
  for (uint64_t t = 0; t < kThreads; ++t) {
    posters.emplace_back([&fake, t] {
      for (uint64_t i = 0; i < kPerThread;) {
        ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE, nullptr, 0);
        wr.wr_id = t << 32 | i;
        wr.wr.rdma.remote_addr = ~wr.wr_id;
        const int error = Post(fake, wr);
        if (error == 0) {
          ++i;
        } else {
          ASSERT_EQ(error, ENOMEM);
          sched_yield();
        }
      }
    });
  }
  uint64_t next[kThreads] = {};
  for (uint32_t taken = 0; taken < kThreads * kPerThread;) {
    const std::atomic_ref<uint32_t> producer(fake.queue.shared->producer);
    if (producer.load(std::memory_order_acquire) == taken) {
      sched_yield();
      continue;
    }
    const roci_abi_send_wqe& entry = fake.Entry(taken);
    const uint64_t thread = entry.wr_id >> 32;
    ASSERT_LT(thread, kThreads);
    ASSERT_EQ(entry.wr_id & 0xFFFFFFFF, next[thread]++);
    ASSERT_EQ(entry.remote_va, ~entry.wr_id);
    fake.queue.tail.store(++taken, std::memory_order_release);
  }
  for (std::thread& poster : posters) poster.join();
}

}  // namespace
}  // namespace roci::provider
